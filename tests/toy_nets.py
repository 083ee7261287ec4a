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
    PoolIntoLinear,
    Pools,
    Sequential,
    ThreeDimensional,
    Transposed,
    Upsampled,
)
from tests.toys.concatenation import CatWithInput, Chunk, Dense, Slice, Split, TwoReaders
from tests.toys.ends import AuxiliaryHead, DictOutputs, NormIsOutput, NormOnInput, TupleOutputs, TwoInputs
from tests.toys.gates import ConstantAdded, Glu, LayerScale, SigmoidGate, SpatialGate, SqueezeExcite
from tests.toys.grouped import Depthwise, DepthwiseMultiplier, Grouped, Shuffle
from tests.toys.residual import (
    AddedToItself,
    InPlace,
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
        Dense,
        TwoReaders,
        Depthwise,
        DepthwiseMultiplier,
        Grouped,
        Chunk,
        Split,
        Slice,
        Shuffle,
        SqueezeExcite,
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
