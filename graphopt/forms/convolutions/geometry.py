"""What a convolution computes, whatever the order of its dimensions: windows, groups, phases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

from graphopt.forms.form import Operation


@dataclass(frozen=True)
class Axis:
    """One spatial dimension.

    Result t reads the input at ``t * stride + k * spread - before`` for every element k of the window,
    where the input has `holes - 1` zeros between its elements, and zeros around it.

    Attributes:
        size: elements of the input.
        window: elements of the window.
        results: elements of the result.
        stride: steps between windows.
        before: zeros in front of the input; elements are cut off where it is negative.
        holes: dilation of the input.
        spread: dilation of the window.
    """

    size: int
    window: int
    results: int
    stride: int
    before: int
    holes: int
    spread: int

    @property
    def reach(self) -> int:
        """Elements of the padded input that results depend on."""
        return (self.results - 1) * self.stride + (self.window - 1) * self.spread + 1

    @property
    def phases(self) -> int:
        """Results so far apart read the same elements of the window."""
        return self.holes // gcd(self.stride, self.holes)

    def phase(self, number: int) -> tuple[Axis | None, slice]:
        """Every so-manieth result as an axis without holes, and the elements of the window it reads.

        Returns:
            None where the window only meets holes.
        """
        step = self.holes // gcd(self.spread, self.holes)
        first = next(
            (
                k
                for k in range(min(step, self.window))
                if (number * self.stride + k * self.spread - self.before) % self.holes == 0
            ),
            None,
        )
        if first is None:
            return None, slice(0, 0)
        start = (number * self.stride + first * self.spread - self.before) // self.holes
        axis = Axis(
            size=self.size,
            window=-(-(self.window - first) // step),
            results=-(-self.results // self.phases),
            stride=self.phases * self.stride // self.holes,
            before=-start,
            holes=1,
            spread=step * self.spread // self.holes,
        )
        return axis, slice(first, None, step)


@dataclass(frozen=True)
class Convolution:
    """A convolution in `groups` independent parts.

    Dimensions have names of one letter: ``n`` batch, ``g`` group, ``i`` input channel of a group, ``o``
    output channel of a group, and digits for spatial dimensions.

    Attributes:
        axes: spatial dimensions.
        batch: of one group.
        groups: independent parts, of channels or of the batch.
        inputs: input channels of a group.
        outputs: output channels of a group.
        itemsize: bytes of an element.
        input_names: dimensions of the input, in the order of memory.
        window_names: of the weights.
        result_names: of the result.
    """

    axes: tuple[Axis, ...]
    batch: int
    groups: int
    inputs: int
    outputs: int
    itemsize: int
    input_names: str
    window_names: str
    result_names: str

    @property
    def digits(self) -> str:
        """Names of the spatial dimensions."""
        return "".join(str(number) for number in range(len(self.axes)))

    @property
    def places(self) -> int:
        """Results of one channel of one element of the batch."""
        return prod(a.results for a in self.axes)

    @property
    def window(self) -> int:
        """Elements of the window."""
        return prod(a.window for a in self.axes)

    @property
    def size(self) -> int:
        """Elements of the result."""
        return self.batch * self.groups * self.outputs * self.places

    @property
    def read(self) -> int:
        """Elements of the input."""
        return self.batch * self.groups * self.inputs * prod(a.size for a in self.axes)

    @property
    def padded(self) -> int:
        """Elements of the input with zeros around it."""
        return self.batch * self.groups * self.inputs * prod(a.reach for a in self.axes)

    @property
    def weights(self) -> int:
        """Elements of all windows."""
        return self.groups * self.inputs * self.outputs * self.window

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.size * self.window * self.inputs

    @property
    def by_batch(self) -> bool:
        """Whether the batch is grouped, as in gradients by the weights of a convolution in groups."""
        return self.groups > 1 and "gn" in self.input_names

    @property
    def channels_last(self) -> bool:
        """Whether dimensions are in the only order that XLA's library computes."""
        return self.input_names == f"n{self.digits}gi" and (
            (self.window_names, self.result_names) == (f"{self.digits}igo", f"n{self.digits}go")
        )

    @property
    def holes(self) -> bool:
        """Whether the input is dilated."""
        return any(a.holes > 1 for a in self.axes)

    def count(self, names: str, of: str = "result") -> int:
        """Elements along dimensions; spatial ones are counted in the result, window or input."""
        found = 1
        for name in names:
            if name.isdigit():
                axis = self.axes[int(name)]
                found *= {"result": axis.results, "window": axis.window, "input": axis.size}[of]
            else:
                found *= {
                    "n": self.batch,
                    "g": self.groups,
                    "i": self.inputs,
                    "o": self.outputs,
                }[name]
        return found

    def parts(self) -> list[tuple[tuple[int, ...], Convolution | None, tuple[slice, ...]]]:
        """Convolutions without holes whose results, interleaved, are the result.

        Returns:
            For each part its numbers along the axes, None where it is all zeros, and the elements of the
            window that it takes.
        """
        found = []
        for numbers in product(*(range(a.phases) for a in self.axes)):
            pairs = [a.phase(number) for a, number in zip(self.axes, numbers, strict=True)]
            axes = tuple(axis for axis, _ in pairs if axis is not None)
            whole = len(axes) == len(pairs)
            part = replace(self, axes=axes) if whole else None
            found.append((numbers, part, tuple(places for _, places in pairs)))
        return found


def convolution(operation: Operation) -> Convolution:
    """The geometry of an operation ``conv_general_dilated``."""
    params, (x, weights), result = operation.params, operation.operands, operation.results[0]
    dims = params["dimension_numbers"]
    by_channel, by_batch = params["feature_group_count"], params["batch_group_count"]
    groups = by_channel * by_batch
    axes = tuple(
        Axis(x.dims[i], weights.dims[w], result.dims[o], stride, before, holes, spread)
        for i, w, o, stride, (before, _), holes, spread in zip(
            dims.lhs_spec[2:],
            dims.rhs_spec[2:],
            dims.out_spec[2:],
            params["window_strides"],
            params["padding"],
            params["lhs_dilation"],
            params["rhs_dilation"],
            strict=True,
        )
    )
    batch = "gn" if by_batch > 1 else "n"
    channels = "gi" if by_batch == 1 else "i"
    return Convolution(
        axes=axes,
        batch=x.dims[dims.lhs_spec[0]] // by_batch,
        groups=groups,
        inputs=weights.dims[dims.rhs_spec[1]],
        outputs=weights.dims[dims.rhs_spec[0]] // groups,
        itemsize=x.dtype.itemsize,
        input_names=_names(dims.lhs_spec, batch, channels),
        window_names=_names(dims.rhs_spec, "go", "i"),
        result_names=_names(dims.out_spec, "n", "go"),
    )


def _names(spec: tuple[int, ...], first: str, second: str) -> str:
    """Names in the order of memory, of an array whose dimensions jax lists as first, second, spatial."""
    names = {spec[0]: first, spec[1]: second}
    names.update({place: str(number) for number, place in enumerate(spec[2:])})
    return "".join(names[place] for place in range(len(spec)))
