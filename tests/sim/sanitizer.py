"""What compute-sanitizer said about the corpus of planted bugs on a GPU, beside what the machine says.

`python -m tests.sim.sanitizer FOLDER` reads the tools' output (`<bug>.<tool>.txt`: each kernel's corrected twin was
launched first, then the kernel, with a line `LAUNCH twin` or `LAUNCH bug` before each), writes
`helpers/data/sanitizer_h200.json` and the table of `helpers/sim/README.md`; bugs that FOLDER lacks keep what was
recorded before. Without FOLDER it only renews the machine's side and the table.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path

from tests import ROOT
from tests.sim.bug_corpus import corpus, symmetric

DATA = ROOT / "helpers" / "data" / "sanitizer_h200.json"
README = ROOT / "helpers" / "sim" / "README.md"
BEGIN, END = "<!-- sanitizer table: begin -->", "<!-- sanitizer table: end -->"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
KINDS = {  # by how a tool's message begins
    "Invalid": "out-of-bounds", "Out-of-range": "out-of-bounds", "Misaligned": "misaligned", "Uninitialized": "uninitialized",
    "Barrier error detected. Missing wait": "missing-wait", "Barrier": "divergent-barrier", "Warpgroup": "divergent-barrier",
    "Illegal instruction": "illegal-instruction",
    "Error: Race": "race", "Warning: Race": "race",
}  # fmt: skip


def parse(text: str) -> dict[str, list]:
    """{'twin': [...], 'bug': [...]}: distinct [kind, line, other line] in the tool's output, 'ended': did the kernel end?"""
    found: dict[str, list] = {"twin": [], "bug": []}
    phase, kind, lines = "twin", None, []

    def close():
        item = [kind, lines[0], lines[1] if kind == "race" and len(lines) > 1 else None] if kind and lines else None
        if item and item not in found[phase]:
            found[phase].append(item)

    for line in [*text.split("\n"), "========= "]:
        if match := re.match(r"LAUNCH (\w+)", line):
            phase = match[1]
        elif match := re.match(rf"========= ({'|'.join(KINDS)})\b", line):
            close()
            kind, lines = KINDS[match[1]], []
        elif match := re.search(r" at \S+ in cell\.cu:(\d+)", line):
            lines.append(int(match[1]))
        elif "is misaligned" in line and kind == "out-of-bounds":
            kind = "misaligned"
        elif line.strip() == "=========":
            close()
            kind, lines = None, []
        if kind == "race" and (match := re.search(r"Race reported .* in cell\.cu:(\d+)", line)) and not lines:
            lines.append(int(match[1]))
    return {**found, "ended": "EXIT 124" not in text or "DONE bug" in text}


def measured(folder: Path) -> dict:
    """The JSON's GPU side, from a folder of outputs."""
    device, driver = (folder / "_device.txt").read_text().strip().split(", ")
    version = re.search(r"Version (\S+)", (folder / "_version.txt").read_text())[1]
    compiler = re.search(r"release [\d.]+, V([\d.]+)", (folder / "_nvcc.txt").read_text())[1]
    bugs = {}
    for bug in corpus():
        outputs = {tool: folder / f"{bug.name}.{tool}.txt" for tool in TOOLS}
        if all(path.exists() for path in outputs.values()):
            bugs[bug.name] = {tool: parse(path.read_text()) for tool, path in outputs.items()}
    return {
        "device": device, "driver": driver, "compute_sanitizer": version, "cuda": compiler,
        "date": (folder / "_date.txt").read_text().strip(), "bugs": bugs,
    }  # fmt: skip


def machine_says() -> dict[str, list]:
    """{bug: [[kind, line, other line], …]} as the corpus states it; test_bugs.py holds the machine to it."""
    return {bug.name: sorted(([*item] for item in symmetric(bug.expected)), key=str) for bug in corpus()}


def _cell(items, ended=True) -> str:
    parts = {}
    for kind, line, other in items:
        where = "" if line is None else f" {line}" if other is None else " " + "–".join(map(str, sorted((line, other))))
        parts[f"{kind}{where}"] = None
    return ", ".join(parts) + ("" if ended or parts else "hangs") or "–"


def _by_tools(row) -> bool:
    return any(row[tool]["bug"] for tool in TOOLS)


def table(data: dict) -> str:
    """The README's part between the markers."""
    shown = [bug for bug in corpus() if bug.name in data["bugs"]]
    rows = {bug.name: data["bugs"][bug.name] for bug in shown}
    says = data["machine"]
    both = [name for name in rows if says[name] and _by_tools(rows[name])]
    ours = [name for name in rows if says[name] and not _by_tools(rows[name])]
    theirs = [name for name in rows if not says[name] and _by_tools(rows[name])]
    neither = [name for name in rows if not says[name] and not _by_tools(rows[name])]
    alarms = [f"{name} ({tool})" for name, row in rows.items() for tool in TOOLS if row[tool]["twin"]]

    def names(found):
        return ", ".join(f"`{name}`" for name in found) or "none"

    prose = [
        f"{len(rows)} planted bugs (`tests/sim/bugs/`), compiled with the course's flags, under compute-sanitizer "
        f"{data['compute_sanitizer']} (CUDA {data['cuda']}) with its default options on an {data['device']}, "
        f"driver {data['driver']}, {data['date']}. Endless kernels (`endless.cu`), refused launches "
        "(`launches.cu`) and ordinary accesses to mbarriers (`mbarriers.cu`) were not run there.",
        "",
        f"- Found by both: {len(both)}.",
        f"- Only by the machine: {len(ours)}: {names(ours)}.",
        f"- Only by compute-sanitizer: {len(theirs)}: {names(theirs)}.",
        f"- By neither: {len(neither)}: {names(neither)}.",
        f"- False alarms on the corrected twins: the machine none, compute-sanitizer {', '.join(alarms) or 'none'}.",
        "",
        "Numbers are lines of the file. “hangs”: the kernel never ended, and the tool had said nothing when it was stopped.",
        "",
    ]
    text = [line for paragraph in prose for line in textwrap.wrap(paragraph, 120, break_on_hyphens=False) or [""]]
    text += [
        "| file | bug | machine | " + " | ".join(TOOLS) + " |",
        "|---|---|---|" + "---|" * len(TOOLS),
    ]
    for bug in shown:
        cells = [_cell(rows[bug.name][tool]["bug"], rows[bug.name][tool]["ended"]) for tool in TOOLS]
        text.append(f"| {bug.file[:-3]} | {bug.name} | {_cell(says[bug.name])} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def _one_bug_a_line(data: dict) -> str:
    """JSON with a line for each bug."""
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            rows = ",\n".join(f'    "{name}": {json.dumps(row)}' for name, row in value.items())
            parts.append(f'  "{key}": {{\n{rows}\n  }}')
        else:
            parts.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str]) -> None:
    """Write the JSON and the table."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    if arguments:
        new = measured(Path(arguments[0]))
        kept = {name: row for name, row in data["bugs"].items() if name not in new["bugs"]}
        data |= {**new, "bugs": {bug.name: {**kept, **new["bugs"]}[bug.name] for bug in corpus() if bug.name in {**kept, **new["bugs"]}}}
    data["machine"] = machine_says()
    DATA.write_text(_one_bug_a_line(data), encoding="utf-8")
    head, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(f"{head}{BEGIN}\n{table(data)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
