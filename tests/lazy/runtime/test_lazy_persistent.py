"""Compiled graphs of one process serve the next, as long as the optimizer is the same."""

from __future__ import annotations

import json
from pathlib import Path

from support.forks import run_forked

SCRIPT = """
import json, sys
import jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from jax import monitoring
import graphopt.lazy as lt
found = {"hits": 0, "misses": 0}
def listen(name, **_):
    for kind in found:
        if name.endswith("compilation_cache/cache_" + kind):
            found[kind] += 1
monitoring.register_event_listener(listen)
if sys.argv[2] == "off":
    lt.set_optimizer(None)
x = lt.ones((8, 8))
for k in range(4):
    with lt.step():
        x = lt.tanh(x @ x * 0.1 + lt.sin(x) * (k + 2.5))
found["value"] = float(x[0, 0])
print(json.dumps(found))
"""


def _run(cache: Path, optimizer: str) -> dict[str, float]:
    done = run_forked(SCRIPT, str(cache), optimizer)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = _run(tmp_path, "on"), _run(tmp_path, "on")
    assert first["misses"] >= 1
    assert (second["misses"], second["hits"]) == (0, first["misses"])
    assert second["value"] == first["value"]
    assert _run(tmp_path, "off")["misses"] >= 1  # another optimizer is another executable
