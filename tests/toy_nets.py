"""One small network a pattern, for tests that look at a single thing. All are made by `make` and always the same.

Batch norms are called `bn…`; the input is an image of three channels unless `example` says otherwise. The networks lie
in `tests/toys`, a file a topic; tests import them from here.
"""

from __future__ import annotations

from tests.toys.across import ChannelMax, ChannelMean, ChannelSoftmax, UnknownOperator
from tests.toys.base import Toy, conv3, make, values
from tests.toys.chains import (
    Activated,
    ChannelsLast,
    ConvOptions,
    Dropout,
    FlattenIntoLinear,
    Linears,
    NormWithoutAffine,
    OneDimensional,
    PaddedPool,
    PoolIntoLinear,
    Pools,
    Sequential,
    ThreeDimensional,
    Transposed,
    Upsampled,
)
from tests.toys.concatenation import (
    CatWithInput,
    Chunk,
    Dense,
    RememberedSizes,
    RememberedSplit,
    SizedByAnother,
    Slice,
    Split,
    TwoReaders,
)
from tests.toys.ends import AuxiliaryHead, DictOutputs, NormIsOutput, NormOnInput, TupleOutputs, TwoInputs
from tests.toys.gates import (
    ConstantAdded,
    DepthwiseGate,
    Glu,
    LayerScale,
    Paths,
    SigmoidGate,
    SpatialGate,
    SqueezeExcite,
)
from tests.toys.grouped import Depthwise, DepthwiseMultiplier, Grouped, Shuffle
from tests.toys.residual import (
    AddedToItself,
    InPlace,
    NormalizedShortcut,
    PreActivation,
    ResidualBranches,
    ResidualIdentity,
    ResidualProjection,
    SumWithBareConv,
)
from tests.toys.sharing import SharedConv, SharedConvAndNorm, SharedTowers

TOYS: dict[str, type[Toy]] = {
    toy.__name__: toy
    for toy in (
        Sequential,
        Activated,
        ConvOptions,
        ResidualIdentity,
        ResidualProjection,
        ResidualBranches,
        SumWithBareConv,
        AddedToItself,
        InPlace,
        PreActivation,
        NormalizedShortcut,
        Dense,
        TwoReaders,
        Depthwise,
        DepthwiseMultiplier,
        Grouped,
        Chunk,
        Split,
        Slice,
        RememberedSplit,
        RememberedSizes,
        SizedByAnother,
        Shuffle,
        SqueezeExcite,
        DepthwiseGate,
        Paths,
        SigmoidGate,
        SpatialGate,
        Glu,
        FlattenIntoLinear,
        PoolIntoLinear,
        Linears,
        Transposed,
        OneDimensional,
        ThreeDimensional,
        SharedConv,
        SharedConvAndNorm,
        SharedTowers,
        TwoInputs,
        TupleOutputs,
        DictOutputs,
        AuxiliaryHead,
        Pools,
        PaddedPool,
        Upsampled,
        Dropout,
        LayerScale,
        ConstantAdded,
        ChannelMean,
        ChannelMax,
        ChannelSoftmax,
        NormWithoutAffine,
        NormOnInput,
        NormIsOutput,
        CatWithInput,
        ChannelsLast,
        UnknownOperator,
    )
}

__all__ = ["TOYS", "Toy", "conv3", "make", "values", *TOYS]
