"""Shape operators: they are run on the labels themselves, so that no index arithmetic is written by hand."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from otprune.channels.graph import Partition
from otprune.channels.labels import NO_CHANNEL, along, compress, laid_out, varying
from otprune.channels.rules.unknown import freeze_arguments
from otprune.channels.sizes import Place, Size, follows_sizes

if TYPE_CHECKING:
    from otprune.channels.tracer import Call, Parameter, Tracer

aten = torch.ops.aten

SELECTION = "otprune_selection"
# Of channels among which those that are gone are put in again: 0 stands for zeros, other numbers are one too large.
# Its name ends in the other's, by which selections are known.
SELECTION_WITH_ZEROS = f"with_zeros_{SELECTION}"


def rearrange(tracer: "Tracer", call: "Call") -> None:
    """Run the operator on labels in the shape of its first argument, a tensor or a list of them."""
    sources = call.args[0] if isinstance(call.args[0], list | tuple) else [call.args[0]]
    if len(sources) == 1 and tracer.parameter(sources[0]) is not None:
        _rearrange_parameter(tracer, call)
        return
    _freeze_parameters(tracer, call, sources)
    if not any(tracer.is_labelled(source) for source in sources):
        return
    full = [tracer.labels(source).expand(source.shape) for source in sources]
    first = full[0] if isinstance(call.args[0], Tensor) else full
    results = _ON_LABELS.get(call.func, call.func)(first, *call.args[1:], **call.kwargs)
    _note_reshaped(tracer, sources)
    for out, labels in zip(_tensors(call.out), _tensors(results), strict=True):
        tracer.mark(out, compress(labels))


def _freeze_parameters(tracer: "Tracer", call: "Call", sources: Sequence[Tensor]) -> None:
    for parameter in filter(None, map(tracer.parameter, sources)):
        tracer.freeze_parameter(parameter.name, f"{call.func} puts it beside other tensors")


def _note_reshaped(tracer: "Tracer", sources: Sequence[Tensor]) -> None:
    tracer.reshaped += [tracer.labels(source).reshape(-1).numpy() for source in sources]


def view(tracer: "Tracer", call: "Call") -> None:
    """A view may cut a channel dimension into groups: channels at the same place of every group go together.

    Nothing tells the number of groups, which is fixed, from that of channels in each, which is not, but that groups
    are named first and are fewer; what does not look so must stay.
    """
    before = [size for size in tracer.labels(call.args[0]).shape if size > 1]
    rearrange(tracer, call)
    labels = tracer.labels(call.out)
    dims = varying(labels)
    sizes = [labels.shape[dim] for dim in dims]
    if len(sizes) > len(before):
        if max(sizes) > sizes[-1]:
            tracer.freeze(labels, f"{call.func} cuts it into more groups than channels a group")
        else:
            _tie_all_but(tracer, labels, dims[-1])
    if dims and (_is_open(tracer.given) or (len(sizes) > 1 and sizes != before)):
        tracer.note_pieces(call.out)
    if isinstance(tracer.given, list) and len(tracer.given) == call.out.dim() and not tracer.parameter(call.out):
        _note_counts(tracer, labels, tracer.given)


def _is_open(given: Any) -> bool:
    """Whether a view's code leaves a size open: it would run, too, where another does not fit the channels."""
    return isinstance(given, list) and any(type(size) is int and size < 0 for size in given)


def _note_counts(tracer: "Tracer", labels: Tensor, given: list[Any]) -> None:
    """Where a view has the number of channels from another tensor, or from a module, that must have as many."""
    dims = varying(labels)
    for dim, size in enumerate(given):
        if isinstance(size, Size):
            lane = labels.movedim(dim, 0).flatten(1)[:, 0] if dims and dim == dims[-1] else None
            for other in _counted_by(size):
                _note_origin(tracer, other, labels, lane)
            if lane is not None and not size.origins and [place.value for place in size.places] == [len(lane)]:
                tracer.remember(size.places[0], lane)


def _counted_by(size: Size) -> list[Tensor]:
    """The channels that lie along the dimensions a size comes from."""
    return [along(labels, dim, labels.shape[dim])[:, 0] for labels, dim in size.origins if labels.shape[dim] > 1]


def _note_origin(tracer: "Tracer", other: Tensor, labels: Tensor, lane: Tensor | None) -> None:
    """Channels whose number a view takes for a size are as many as those along it, or as all that it has."""
    own = labels[labels != NO_CHANNEL].unique()
    fitting = [] if lane is None else [row for row in (lane, own) if len(row) == len(other)]
    if not varying(labels):
        tracer.freeze(other, "a tensor that has no channels gets their number as a size")
    elif fitting and not torch.equal(other, fitting[0]):
        tracer.nodes.append(Partition(torch.stack([other, fitting[0]]).numpy()))


def pixel_shuffle(tracer: "Tracer", call: "Call") -> None:
    """Channels that become neighbouring pixels of one channel go together."""
    rearrange(tracer, call)
    if tracer.is_labelled(call.out):
        _tie_all_but(tracer, tracer.labels(call.out), call.out.dim() - 3)


def _tie_all_but(tracer: "Tracer", labels: Tensor, dim: int) -> None:
    lanes = labels.movedim(dim, 0).flatten(1)
    tracer.tie(lanes[:, :1], lanes, "grouped with positions that carry no channel")


def concatenate(tracer: "Tracer", call: "Call") -> None:
    """Concatenation leaves channels apart along its own dimension and aligns them along every other."""
    sources = [source for source in call.args[0] if source.numel() or source.dim() > 1]
    if not sources:
        return
    dim = (call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)) % sources[0].dim()
    across = [tracer.labels(source).narrow(dim, 0, 1) for source in sources]
    if any(varying(labels) for labels in across):
        for other in across[1:]:
            tracer.tie(across[0], other, "concatenated with positions that carry no channel")
    _note_reshaped(tracer, sources)
    _freeze_parameters(tracer, call, sources)
    shape = list(torch.broadcast_shapes(*(labels.shape for labels in across)))
    lanes = [tracer.labels(source).expand(*shape[:dim], source.shape[dim], *shape[dim + 1 :]) for source in sources]
    if any(tracer.is_labelled(source) for source in sources):
        tracer.mark(call.out, compress(torch.cat(lanes, dim)))


def stack(tracer: "Tracer", call: "Call") -> None:
    labels = [tracer.labels(source) for source in call.args[0]]
    for other in labels[1:]:
        tracer.tie(labels[0], other, "stacked with a tensor that has no channels")
    rearrange(tracer, call)


def split(tracer: "Tracer", call: "Call") -> None:
    """Pieces of a size that the code has from its tensors must stay equal, those of a size remembered need not be.

    Different sizes that are not remembered, or one that is written in the code, are taken as fixed.
    """
    source = call.args[0]
    dim = (call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)) % source.dim()
    cuts_channels = tracer.labels(source).shape[dim] > 1
    if cuts_channels:
        lanes = along(tracer.labels(source), dim, source.shape[dim])
        cut = lanes[:, 0].split([piece.shape[dim] for piece in call.out])
        if lanes.shape[1] > 1 or not _follows_channels(tracer, cut, lanes[:, 0]):
            tracer.freeze(lanes, f"{call.func} cuts it into pieces of fixed size")
    else:  # cut by the number of another tensor's channels
        tracer.freeze_counted(
            [one for size in pytree.tree_leaves(tracer.given) for one in getattr(size, "origins", ())]
        )
    rearrange(tracer, call)
    if cuts_channels:
        tracer.note_pieces(*call.out)


def _follows_channels(tracer: "Tracer", cut: tuple[Tensor, ...], source: Tensor) -> bool:
    """Whether the sizes of pieces change with their channels; those computed from one number only if all are equal."""
    equal, given = len({len(lane) for lane in cut}) == 1, tracer.given
    follows = equal and (given is None or follows_sizes(given))
    alike = not isinstance(given, list | tuple) or _has_shares(given, cut)  # one size for all, or shares of one number
    if not follows and ((alike and not equal) or not _is_remembered(tracer, given, cut, source)):
        return False
    if follows or alike:
        tracer.nodes.append(Partition(torch.stack(cut).numpy()))
    return True


def _size_of_each(given: Any, cut: Sequence[Tensor]) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given] * len(cut)


def _has_shares(given: Any, cut: Sequence[Tensor]) -> bool:
    """Whether a piece's size is computed from one number alone, such as half of it, and is not the number itself."""
    pairs = zip(_size_of_each(given, cut), cut, strict=False)
    return any([place.value == len(piece) for place in getattr(size, "places", ())] == [False] for size, piece in pairs)


def _is_remembered(tracer: "Tracer", given: Any, cut: Sequence[Tensor], source: Tensor) -> bool:
    """Whether modules remember the sizes of all pieces, or that of the whole from which they are computed."""
    sizes = _size_of_each(given, cut)
    counted = [_counted(size, piece, source) for size, piece in zip(sizes, cut, strict=False)]
    if len(sizes) != len(cut) or not all(counted):
        return False
    for place, lane in itertools.chain.from_iterable(counted):
        tracer.remember(place, lane)
    return True


def _counted(size: Any, piece: Tensor, source: Tensor) -> list[tuple[Place, Tensor]]:
    """What a number that a piece's size is computed from counts: all channels, or the piece, if it is the size itself.

    Where several numbers could count the same, nobody knows which does.
    """
    places = getattr(size, "places", ())
    lanes = {len(source): source} | ({len(piece): piece} if len(places) == 1 else {})
    found = [(place, lanes[place.value]) for place in places if place.value in lanes]
    return found if len(found) == 1 else []


def part(tracer: "Tracer", call: "Call") -> None:
    """A slice or a single index: what it is taken from keeps its size where channels are counted."""
    source = call.args[0]
    dim = (call.args[1] if len(call.args) > 1 else 0) % max(source.dim(), 1)
    whole = isinstance(call.out, Tensor) and call.out.shape == source.shape
    if tracer.is_labelled(source) and tracer.labels(source).shape[dim] > 1 and not whole:
        tracer.freeze(tracer.labels(source), f"{call.func} takes channels by their position")
    rearrange(tracer, call)


def index_select(tracer: "Tracer", call: "Call") -> None:
    """The channel selection of a pruned model; any other index is taken as fixed."""
    source, dim, index = call.args
    name = tracer.name_of(index)
    if name not in tracer.selections:
        freeze_arguments(tracer, call, f"{call.func} takes channels by their position")
        return
    lane = tracer.lane(source, dim, "different channels meet one selection")
    picks = tracer.selections[name]
    tracer.mark(call.out, laid_out(lane[picks], dim, source.dim()))
    call.out._otprune_selection = (lane, picks)


def _rearrange_parameter(tracer: "Tracer", call: "Call") -> None:
    """Find where each axis of a parameter went by running the operator on its indices."""
    source = call.args[0]
    parameter = tracer.parameter(source)
    assert parameter is not None
    # An axis of size 1 leaves no trace in its indices; where sizes do not matter, two stand for it.
    shape = [max(size, 2) if call.func in _WITHOUT_SIZES else size for size in source.shape]
    axes: dict[int, int] = {}
    for dim, axis in enumerate(parameter.axes):
        indices = laid_out(torch.arange(shape[dim]), dim, len(shape)).expand(shape)
        result = _ON_LABELS.get(call.func, call.func)(indices, *call.args[1:], **call.kwargs)
        found = compress(result) if isinstance(result, Tensor) else indices[:0]
        dims = varying(found)
        if axis is not None and len(dims) == 1 and torch.equal(found.reshape(-1), torch.arange(shape[dim])):
            axes[dims[0]] = axis
    wide = sum(size > 1 for size, axis in zip(shape, parameter.axes, strict=True) if axis is not None)
    if isinstance(call.out, Tensor) and len(axes) == wide:
        tracer.mark_parameter(call.out, _renamed(parameter, axes, call.out.dim()))
    else:
        tracer.freeze_parameter(parameter.name, f"{call.func} takes it apart")


def _renamed(parameter: "Parameter", axes: dict[int, int], rank: int) -> "Parameter":
    return type(parameter)(parameter.name, tuple(axes.get(dim) for dim in range(rank)))


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


_WITHOUT_SIZES = frozenset({aten.permute.default, aten.transpose.int, aten.t.default, aten.unsqueeze.default})
_ON_LABELS = {aten.view.default: torch.reshape, aten._unsafe_view.default: torch.reshape}

VIEWS = frozenset({aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default})
SPLITS = frozenset({aten.split.Tensor, aten.split_with_sizes.default})

RULES = {
    **dict.fromkeys(VIEWS, view),
    **dict.fromkeys(
        (
            *(aten.permute.default, aten.transpose.int, aten.t.default, aten.unsqueeze.default),
            *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.expand.default),
            *(aten.flip.default, aten.repeat.default),
        ),
        rearrange,
    ),
    **dict.fromkeys((aten.pixel_shuffle.default,), pixel_shuffle),
    aten.cat.default: concatenate,
    aten.stack.default: stack,
    **dict.fromkeys(SPLITS, split),
    **dict.fromkeys((aten.slice.Tensor, aten.select.int, aten.unbind.int), part),
    aten.index_select.default: index_select,
}
