"""The lines of the per-image kernel that depend on the network."""

from typing import TYPE_CHECKING

from pareo.backends.cuda.epoch.layers import Dense, Windows

if TYPE_CHECKING:
    from pareo.backends.cuda.epoch.source import PerImageKernel

SYNC = "__syncthreads();"
ALIGNED = 4  # floats or words: whole sectors of memory


def rounded(count: int) -> int:
    """A number of floats or words, rounded up to the alignment."""
    return -(-count // ALIGNED) * ALIGNED


class Emitter:
    """The lines that `source.PerImageKernel` puts into its template."""

    def __init__(self, kernel: "PerImageKernel") -> None:
        self.kernel = kernel
        self.single_block = kernel.blocks == 1
        starts = [0]
        for layer in kernel.layers:
            starts.append(starts[-1] + layer.parameters)
        self.starts = starts[:-1]
        self.firsts: dict[int, int] = {}  # a layer's first part of the message
        position = 0
        for number, layer in enumerate(kernel.layers):
            self.firsts[number] = position
            position += 2 if isinstance(layer, Dense) else 1

    def types(self) -> list[str]:
        """Type definitions of the layers and of the parts of a message."""
        lines = [f"using Layer{n} = {layer.type};" for n, layer in enumerate(self.kernel.layers)]
        for n, part in enumerate(self.kernel.parts):
            chunk = part.count if self.single_block else self.kernel.chunk
            lines.append(f"using Part{n} = Part<{part.first}, {part.count}, {chunk}>;")
            if part.rows and not self.single_block:
                errors = self.kernel.parts[n + 1]
                sizes = f"{errors.first}, {errors.count}, {errors.count}"
                lines.append(f"using Errors{n} = Part<{sizes}>;  // all of them")
        return lines

    def arguments(self) -> list[str]:
        return [", ".join(f"float* p{n}" for n in range(len(self.kernel.sizes))) + ","]

    def places(self) -> list[str]:
        """Pointers to the arrays in shared memory."""
        lines, start = [], 0
        for name, floats in self.kernel.room.items():
            lines.append(f"float* {name} = shared + {start};")
            start += rounded(floats)
        return lines

    def load(self) -> list[str]:
        """Parameters and velocities into shared memory."""
        lines = self._each_parameter("copy_all<{size}>(parameters + {start}, p{n});")
        if self.kernel.momentum:
            lines.append("copy_all<PARAMETERS>(velocities, speeds);")
        return lines

    def store(self) -> list[str]:
        """The parameters back to global memory, by the first block."""
        lines = self._each_parameter("copy_all<{size}>(p{n}, parameters + {start});")
        return ["if (blockIdx.x > 0) return;", *lines]

    def _each_parameter(self, line: str) -> list[str]:
        lines, start = [], 0
        for n, size in enumerate(self.kernel.sizes):
            lines.append(line.format(n=n, size=size, start=start))
            start += size
        return lines

    def passes(self) -> list[str]:
        """The forward and backward pass of one image, until its message is sent."""
        lines = []
        layers = list(enumerate(self.kernel.layers))
        for n, layer in layers:
            if isinstance(layer, Windows):
                lines += [f"Layer{n} windows;"]
                lines += [f"windows.forward(image, parameters, values{n});", SYNC]
            else:
                lines += self._send(self.firsts[n], self.below(n))
                lines += [f"Layer{n}::forward({self.below(n)}, {self.at(n)}, values{n});", SYNC]
        lines += self._loss()
        for n, layer in reversed(layers):
            if isinstance(layer, Windows):
                lines += [f"windows.backward(errors{n}, parameters, terms);", SYNC]
                lines += [f"Layer{n}::sums(terms, [=](int word, float sum) {{"]
                lines += [f"    {self._send_sum(n)}", "});"]
                continue
            lines += self._send(self.firsts[n] + 1, f"errors{n}")
            if n > 0:
                arrays = f"errors{n}, {self.at(n)}, values{n - 1}, errors{n - 1}"
                lines += [f"Layer{n}::backward<Layer{n - 1}::Outer>({arrays});", SYNC]
        if not self.single_block:
            lines += ["next.store(image);", SYNC]
        return lines

    def below(self, n: int) -> str:
        """The values that a layer reads."""
        return f"values{n - 1}" if n else "image"

    def at(self, n: int) -> str:
        """A layer's parameters."""
        return f"parameters + {self.starts[n]}"

    def _send_sum(self, n: int) -> str:
        if self.single_block:
            return f"now.move({self.starts[n]} + word, sum);"
        return f"send(message + {self.kernel.parts[self.firsts[n]].first} + word, sum, stamp);"

    def _send(self, number: int, values: str) -> list[str]:
        """Send a part of the message whose values are known."""
        part = self.kernel.parts[number]
        if self.single_block:
            return []
        return [
            f"for (int i = threadIdx.x; i < {part.count}; i += THREADS)",
            f"    send(message + {part.first} + i, {values}[i], stamp);",
        ]

    def _loss(self) -> list[str]:
        last = len(self.kernel.layers) - 1
        classes = self.kernel.layers[-1].outputs
        word = self.kernel.parts[-1].first
        report = (
            "parameters[PARAMETERS] = loss;"
            if self.single_block
            else f"send(message + {word}, loss, stamp);"
        )
        return [
            f"cross_entropy<{classes}>(values{last}, label, errors{last}, [=](float loss) {{",
            f"    {report}",
            "});",
            SYNC,
        ]

    def update(self) -> list[str]:
        """From messages to new parameters in every block."""
        if self.single_block:
            return self._update_here()
        lines, end = [], 0
        for n, part in enumerate(self.kernel.parts):
            chunks = -(-part.count // self.kernel.chunk)
            lines += [f"{'} else ' if n else ''}if (chunk < {end + chunks}) {{"]
            lines += ["    " + line for line in self._collected(n, end)]
            end += chunks
        lines += ["}"]
        if end > self.kernel.blocks:
            lines += [SYNC]
        return [
            f"for (int chunk = blockIdx.x; chunk < {end}; chunk += BLOCKS) {{",
            *("    " + line for line in lines),
            "}",
            SYNC,
            "wait_for(new_parameters, stamp);",
            "receive<PARAMETERS + 1>(",
            "    parameters, [=](int p) { return new_parameters + p; }, stamp);",
        ]

    def _collected(self, n: int, first: int) -> list[str]:
        """Read a chunk of a part and add it up."""
        part, chunk = self.kernel.parts[n], f"chunk - {first}"
        lines = [f"Part{n}::read(messages, {chunk}, words, stamp);"]
        move = f"[=](int p, float sum) {{ now.move({part.parameter} + p, sum); }}"
        if part.rows:
            lines += [f"Errors{n}::read(messages, 0, word_errors, stamp);", SYNC]
            arrays = f"words, word_errors, {chunk}"
            return [*lines, f"Part{n}::multiply<{part.rows.outputs}>({arrays}, {move});"]
        if n == len(self.kernel.parts) - 1:
            move = "[=](int, float sum) { send(new_parameters + PARAMETERS, sum / BATCH, stamp); }"
        return [*lines, SYNC, f"Part{n}::add_up(words, {chunk}, {move});"]

    def _update_here(self) -> list[str]:
        """With a single block: update the dense layers' parameters in shared memory."""
        lines = []
        for n, layer in enumerate(self.kernel.layers):
            if isinstance(layer, Windows):
                continue
            number = self.firsts[n]
            for part, call in (
                (number, f"multiply<{layer.outputs}>({self.below(n)}, errors{n}, 0, "),
                (number + 1, f"add_up(errors{n}, 0, "),
            ):
                start = self.kernel.parts[part].parameter
                move = f"[=](int p, float sum) {{ now.move({start} + p, sum); }}"
                lines.append(f"Part{part}::{call}{move});")
        return [*lines, SYNC, "next.store(image);"]
