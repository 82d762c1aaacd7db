"""One ladder from the files of many: what contradicts itself is left out with a sentence, and people of one name stay two."""

from __future__ import annotations

import hashlib
import json

import pytest

from helpers.course import rungs
from helpers.course.class_ladder import class_ladder, export
from helpers.course.grading.apart import predict_here
from helpers.course.lesson import reference
from helpers.course.steps import STEPS, get
from helpers.course.store import Store
from helpers.errors import CourseError
from helpers.front import cli

GPU = "H200 SXM"
SOURCE = "kernel"


def climbed(folder, name, *speeds, path=None, **more):
    """The file of somebody with a rung for each of these TFLOPS."""
    store = Store(folder / f"home of {path or name}")
    for speed in speeds:
        values = {"label": "mine", "kind": "measured", "device": GPU, "m": 4096, "n": 4096, "k": 4096, "source": SOURCE} | more
        store.climb(milliseconds=2 * values["m"] * values["n"] * values["k"] / speed / 1e9, **values)
    file = folder / f"{path or name}.json"
    assert export(file, name, store) == len(speeds)
    return file


def changed(path, **climb):
    """The same file with other values in its first climb, or (about=…) beside them."""
    content = json.loads(path.read_text())
    content |= climb.pop("about", {})
    if climb:
        content["climbs"][0] |= climb
    path.write_text(json.dumps(content))
    return path


def test_the_best_of_each_stands_first(tmp_path):
    found = class_ladder(
        climbed(tmp_path, "Ada", 10.0, 30.0), climbed(tmp_path, "Bob", 20.0, label="b"), climbed(tmp_path, "Cy", 5.0, m=512, n=512, k=512)
    )
    assert [(item.person, round(item.rung.tflops)) for item in found.climbs] == [("Cy", 5), ("Ada", 30), ("Bob", 20)]
    assert found.said == ("Ada: of 2 climbs of mine at 4096³ on H200 SXM, measured, the fastest stands here.",)
    assert "3 rungs of 3 people" in str(found)
    shown = {rung.name: rung for rung in found.rungs()}
    assert {"Ada", "Bob", "cuBLAS", "schedule"} <= shown.keys() and "Cy" not in shown
    assert any(rung.kind == rungs.LIMIT for rung in shown.values())
    assert "Ada: 30 TFLOPS (measured)" in found.draw().alt and "<img" in found._repr_html_()


def test_of_products_that_as_many_have_climbed_the_latest_is_shown(tmp_path):
    """Who has only their own file sees what they climbed last, and no other because its name comes first."""
    sizes = {"b": 512, "c": 2048, "a": 1024}  # in this order, neither by name nor by size
    store = Store(tmp_path / "home of Ada")
    for label, size in (*sizes.items(), ("c", 2048)):
        values = {"label": label, "kind": "measured", "device": GPU, "m": size, "n": size, "k": size, "source": SOURCE}
        store.climb(milliseconds=2 * size**3 / (9.0 if label in {climb.label for climb in store.climbs()} else 10.0) / 1e9, **values)
    export(tmp_path / "Ada.json", "Ada", store)
    found = class_ladder(tmp_path / "Ada.json")
    assert found.product.m == 2048 and round(found.product.tflops) == 10  # the slower one is the latest, the faster one stands there
    both = class_ladder(tmp_path / "Ada.json", climbed(tmp_path, "Bob", 5.0, m=512, n=512, k=512))
    assert both.product.m == 512  # two people


@pytest.mark.parametrize("again", [False, True])
def test_a_row_without_its_fields_stops_nobody(again, tmp_path):
    bob = climbed(tmp_path, "Bob", 10.0)
    content = json.loads(bob.read_text())
    bob.write_text(json.dumps(content | {"climbs": [{}, {"label": [[1] * 99]}, *content["climbs"]]}))
    found = class_ladder(bob, climbed(tmp_path, "Ada", 20.0), again=again)
    assert [item.person for item in found.climbs] == ["Ada", "Bob"]
    assert found.said == ("Bob: kernel is left out: its row is not as `course ladder export` writes it.",)


def test_a_number_behind_a_name_is_nobody_else_s_name(tmp_path):
    files = [climbed(tmp_path, name, 10.0 * place, path=f"{place}") for place, name in enumerate(("Ada", "Ada", "Ada (1)"), 1)]
    assert {item.person for item in class_ladder(*files).climbs} == {"Ada (1)", "Ada (2)", "Ada (3)"}


def test_a_file_twice_is_one_and_a_later_one_adds_to_it(tmp_path):
    first = climbed(tmp_path, "Ada", 10.0)
    again = tmp_path / "again.json"
    again.write_bytes(first.read_bytes())
    assert len(class_ladder(first, first, again).climbs) == 1
    store = Store(tmp_path / "home of Ada")
    store.climb(label="new", kind="measured", device=GPU, m=4096, n=4096, k=4096, milliseconds=5.0, source=SOURCE)
    export(again, "Ada L.", store)
    found = class_ladder(first, again)
    assert {item.person for item in found.climbs} == {"Ada L."} and len(found.climbs) == 2
    assert found.said == ("Ada and Ada L. are files of one person, who stands here as Ada L..",)


def test_two_people_of_one_name_stay_two(tmp_path):
    found = class_ladder(climbed(tmp_path, "Kim", 10.0), climbed(tmp_path, "Kim", 20.0, path="other"))
    assert {item.person for item in found.climbs} == {"Kim (1)", "Kim (2)"}
    assert found.said == ("Several people are called Kim; they are numbered: Kim (1) is Kim.json, Kim (2) is other.json.",)


@pytest.mark.parametrize(
    ("climb", "said"),
    [
        ({"tflops": 60.0}, "contradict each other"),
        ({"tflops": 600.0, "milliseconds": 2 * 4096**3 / 600e9}, "more than H200 SXM can do"),
        ({"source": "another"}, "the hash differs"),
        ({"source": ""}, "the hash differs"),
        ({"kind": "recorded"}, "no such recorded run"),
        ({"kind": "dreamt"}, "no kind or type"),
        ({"m": 1 << 40}, "no positive number"),
        ({"milliseconds": float("nan")}, "no positive number"),
        ({"tflops": None}, "no positive number"),
        ({"n": True}, "its row is not as"),
        ({"cublas_ratio": -1.0}, "share of cuBLAS"),
        ({"m": 10**400}, "larger than any that can be"),
        ({"milliseconds": 10**400}, "larger than any that can be"),
        ({"cublas_ratio": 10**400}, "larger than any that can be"),
        ({"source_hash": []}, "its row is not as"),
        ({"source_hash": None}, "its row is not as"),
        ({"tflops": 600.0, "milliseconds": 2 * 4096**3 / 600e9, "device": f"{GPU}\x00"}, "can do"),
    ],
)
def test_what_is_not_believed_is_left_out_and_named(climb, said, tmp_path):
    found = class_ladder(changed(climbed(tmp_path, "Eve", 10.0, 9.0, label="x"), **climb))
    assert len(found.climbs) == 1 and len(found.said) == 1
    assert found.said[0].startswith("Eve: x is left out:") and said in found.said[0]


def test_an_honest_climb_with_each_recorded_kernel_stays(tmp_path):
    """Step 18 has more than the lanes can do: it multiplies elsewhere."""
    rows = [row for row in rungs.recorded() if row["m"] == row["n"] == row["k"] == 4096 and row.get("kernel_hash")]
    shipped = {step.slug: step.kernel_path.read_text(encoding="utf-8") for step in STEPS if step.kernel_path}
    known = {row["slug"]: row for row in rows if row["kernel_hash"] == rungs.code_hash(shipped[row["slug"]])}
    assert {"schedule", "warp_specialized", "fp32_on_tensor_cores", "fp8"} <= known.keys()
    files = [
        climbed(tmp_path, slug, row["tflops"], kind="recorded", label=slug, source=shipped[slug], dtype=row["dtype"],
                out_dtype=row["out_dtype"])
        for slug, row in known.items()
    ]  # fmt: skip
    found = class_ladder(*files)
    assert found.said == () and {item.rung.name for item in found.climbs} == known.keys()


@pytest.mark.parametrize(("speed", "source", "good"), [
    (250.0, 'asm("wgmma.mma_async.sync.aligned")', True), (1200.0, 'asm("wgmma.mma_async.sync.aligned")', False),
    (250.0, "// wgmma.mma_async", False), (250.0, "/* nvcuda::wmma::mma_sync */ sum += a * b;", False),
])  # fmt: skip
def test_an_fp32_product_of_pieces_is_held_to_the_tensor_cores_limit(speed, source, good, tmp_path):
    found = class_ladder(climbed(tmp_path, "Ada", speed, source=source))
    assert len(found.climbs) == good and ("more than H200 SXM can do" in "".join(found.said)) is not good


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is damaged, or no file of"),
        ("[" * 100_000, "is damaged, or no file of"),
        ('{"course": "gemm-ladder", "format": 1, "schema": 4, "tables": {}}', "is no file of `course ladder export`"),
        ('{"course": "gemm-ladder", "format": 1, "schema": 4, "tables": {}}', "its owner writes the other"),
        ('{"course": "gemm-ladder", "what": "class ladder", "format": 2}', "newer version"),
        ('{"course": "gemm-ladder", "what": "class ladder", "format": 1, "name": 5}', "is damaged: it is not as"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_good_is_a_sentence_and_the_others_count(text, said, tmp_path):
    bad = tmp_path / "bad.json"
    if text is not None:
        bad.write_text(text)
    found = class_ladder(bad, climbed(tmp_path, "Ada", 10.0))
    assert len(found.climbs) == 1 and len(found.said) == 1 and said in found.said[0] and "bad.json" in found.said[0]


@pytest.mark.parametrize("given", [3, None, ["ada.json"], b"ada.json"], ids=str)
def test_what_is_no_path_is_a_sentence(given):
    with pytest.raises(CourseError, match=f"no {type(given).__name__}: class_ladder"):
        class_ladder("missing.json", given)


def test_a_name_cannot_draw_over_the_table(tmp_path):
    path = changed(climbed(tmp_path, "Eve", 10.0), about={"name": "<b>E\x1b[2Jv\u202ee</b>\n" + "x" * 99})
    found = class_ladder(path)
    assert found.climbs[0].person.startswith("<b>E[2Jve</b> xxx") and len(found.climbs[0].person) == 40
    assert "<b>E" not in found._repr_html_()


@pytest.mark.slow
def test_predictions_are_made_again_from_the_source(tmp_path):
    naive = get("naive").kernel_path.read_text(encoding="utf-8")
    time = reference("naive").profile(256, GPU).as_predicted().milliseconds
    size = {"m": 256, "n": 256, "k": 256, "kind": "predicted", "source": naive}
    speed = 2 * 256**3 / time / 1e9
    files = [
        climbed(tmp_path, "right", speed, **size),
        climbed(tmp_path, "wrong", speed, **size | {"source": naive.replace("sum += a * b", "sum -= a * b")}),
        climbed(tmp_path, "reads", speed, **size | {"source": '#include "/etc/passwd"\n' + naive}),
        climbed(tmp_path, "measured", speed, **size | {"kind": "measured"}),
    ]
    found = class_ladder(*files, again=True, predict=predict_here)
    assert {item.person: item.verified for item in found.climbs} == {"right": "predicted again", "measured": ""}
    assert [text.split(":")[0] for text in found.said] == ["wrong", "reads"]
    slower = class_ladder(files[0], predict=lambda _: (2 * time, ""))
    assert slower.climbs == () and "and the file says" in slower.said[0]


def test_each_is_predicted_from_its_own_source(tmp_path):
    """A row that is left out lends its source to no other, of the same file or of another's."""
    asked = []

    def predict(climb):
        asked.append(climb["source"])
        return 10.0, ""

    speed = 2 * 4096**3 / 10 / 1e9
    ada = climbed(tmp_path, "Ada", speed, kind="predicted", source="good")
    bob = climbed(tmp_path, "Bob", speed, kind="predicted", source="bad")
    rows = json.loads(bob.read_text())["climbs"]
    changed(bob, about={"climbs": [*rows, rows[0] | {"source": "good"}, json.loads(ada.read_text())["climbs"][0] | {"source": "bad"}]})
    assert len(class_ladder(ada, bob, predict=predict).said) == 1
    assert sorted(asked) == ["bad", "good"]


def test_nobody_exports_without_a_rung_or_a_name(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(CourseError, match="no rung of yours"):
        export(tmp_path / "file.json", "Ada", store)
    store.climb(label="x", kind="predicted", device=GPU, m=64, n=64, k=64, milliseconds=1.0, source=SOURCE)
    for name, path, said in (("\n", "file.json", "Under what name"), ("Ada", "file.json/x", "cannot be written")):
        (tmp_path / "file.json").touch()
        with pytest.raises(CourseError, match=said):
            export(tmp_path / path, name, store)


def test_the_command_merges_and_draws(tmp_path, capsys):
    files = [str(climbed(tmp_path, "Ada", 10.0)), str(climbed(tmp_path, "Bob", 20.0))]
    assert cli.main(["ladder", "merge", *files, "--picture", str(tmp_path / "ladder.svg")]) == 0
    assert "2 rungs of 2 people" in capsys.readouterr().out and "Bob" in (tmp_path / "ladder.svg").read_text()
    (tmp_path / "bad.json").write_text("{")
    assert cli.main(["ladder", "merge", str(tmp_path / "bad.json")]) == 1
    assert "is damaged" in capsys.readouterr().out


def test_the_source_is_hashed_as_the_store_does(tmp_path):
    content = json.loads(climbed(tmp_path, "Ada", 10.0).read_text())
    assert content["climbs"][0]["source_hash"] == hashlib.sha256(SOURCE.encode()).hexdigest()
