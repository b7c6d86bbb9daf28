"""Writes ``decisions.json`` anew; with ``--capture`` also compiles all programs for ``modules.tar.xz``.

Run ``python tests/golden/record.py`` from anywhere. It prints what changed.
"""

import argparse
import io
import json
import lzma
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.decisions import EXPECTED, MODULES, decided, expected, modules


def capture() -> None:
    """Compiles every program of the corpus and the demo, and packs their modules."""
    from graphopt.corpus import load_corpus
    from graphopt.corpus.capture import capture_modules
    from graphopt.corpus.demo import DEMO
    from graphopt.corpus.workloads import build_program

    packed = {entry.name: entry.modules for entry in load_corpus()}
    for program in DEMO:
        fn, args = build_program(program, program.name)
        packed[f"demo.{program.name}"] = capture_modules(fn, *args)
    with lzma.open(MODULES, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        for name, found in sorted(packed.items()):
            for index, data in enumerate(found):
                member = tarfile.TarInfo(f"{name}.{index}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def main() -> None:
    """Records, and says what differs from the record before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capture", action="store_true")
    if parser.parse_args().capture:
        capture()
    before = expected() if EXPECTED.exists() else {}
    after = {name: decided(data) for name, data in modules()}
    EXPECTED.write_text(json.dumps(after, indent=0) + "\n")
    for name in sorted({*before, *after}):
        old, new = before.get(name, {}), after.get(name, {})
        for what in sorted({*old, *new}):
            if old.get(what) != new.get(what):
                print(f"{name}, {what}: {old.get(what)} -> {new.get(what)}")


if __name__ == "__main__":
    main()
