"""What arrives at the service is data, and is refused with a sentence where it is not what it should be."""

import json
import pickle

import numpy as np
import pytest

from helpers.errors import LaunchError
from helpers.run.gemm import Problem
from helpers.run.shared_gpu import protocol
from helpers.run.shared_gpu.protocol import Copied, LaunchJob, Made, Passed, ProductJob, SentCode
from helpers.run.tensor_maps import tensor_map
from helpers.run.variable_values import SymbolValue
from helpers.toolchain.compile import compile_source

COMPILED = compile_source(
    "__global__ void twice(float* x, const float* y, float a, int n) { if (threadIdx.x < n) x[threadIdx.x] = a * y[threadIdx.x]; }"
)
CODE = SentCode(COMPILED.ptx, COMPILED.symbol, COMPILED.entry, COMPILED.arch, 0)
LAUNCH = LaunchJob(
    CODE, (1, 1, 1), (32, 1, 1), 0, None, None,
    (Made("float32", (4,), bytes(16)), Made("bfloat16", (2, 3), None, 7, False)),
    (Passed(array=0), Passed(array=1), Passed(value=np.float32(2).tobytes()), Passed(value=np.int32(4).tobytes())),
    (Copied(1, 6, 0, 16, 1, 6),), (SymbolValue("mask", b"12"),),
)  # fmt: skip


def changed(**fields) -> bytes:
    """The message of LAUNCH with other fields; dotted names are those within."""
    message = json.loads(protocol.dumps(LAUNCH))
    for name, value in fields.items():
        *above, last = name.split("__")
        inner = message
        for part in above:
            inner = inner[int(part) if part.isdecimal() else part]
        inner[last] = value
    return json.dumps(message).encode()


PRODUCT = ProductJob(CODE, Problem(5, 6, 7, beta=0.5, dtype="float16"), 3, 1.0)
FACTORS = ProductJob(CODE, Problem(5, 6, 7, dtype="float8_e4m3", out_dtype="bfloat16", scale_block=(1, 128, 128)), 3, 1.0)
COLUMNS = ProductJob(CODE, Problem(5, 6, 7, transb=True), 3, 1.0)


@pytest.mark.parametrize("job", [LAUNCH, PRODUCT, FACTORS, COLUMNS], ids=["launch", "product", "factors", "columns"])
def test_a_job_arrives_as_it_was_sent(job):
    assert protocol.loads(protocol.dumps(job)) == job


def test_arguments_are_those_of_the_launch():
    arrays = [made.array() for made in LAUNCH.arrays]
    values = LAUNCH.values(arrays, CODE.compiled().parameters)
    assert values[0] is arrays[0]
    assert [value.tobytes() for value in values[2:]] == [np.float32(2).tobytes(), np.int32(4).tobytes()]
    assert arrays[1].dtype.name == "bfloat16"
    assert (arrays[1] == LAUNCH.arrays[1].array()).all(), "the same seed makes the same array"


def test_a_tensor_map_arrives_as_it_was_sent():
    map_ = tensor_map(np.zeros((64, 96), np.float32), (32, 32), "128B")
    memory = Made("uint8", (64 * 96 * 4,))
    job = LaunchJob(CODE, (1, 1, 1), (1, 1, 1), 0, None, None, (memory,), (Passed(array=0, tensor=map_.tensor, l2_promotion=128),))
    assert protocol.loads(protocol.dumps(job)).arguments[0].tensor == map_.tensor


MALFORMED = {
    "not JSON": b"\xff\x00", "a pickle": pickle.dumps({"version": 3}), "deeply nested": b"[" * 100_000, "a list": b"[]", "no code": b'{"version": 3}',
    "a kind that is none": changed(kind="run"), "code that is text": changed(code="ptx"), "a symbol that is a path": changed(code__symbol="../x"),
    "an architecture that is none": changed(code__arch="sm_90 -I/"), "zero bytes in the PTX": changed(code__ptx="\0"),
    "an empty grid": changed(grid=[0, 1, 1]), "a grid of truths": changed(grid=[True, 1, 1]), "2048 threads": changed(block=[1024, 2, 1]),
    "negative shared memory": changed(shared=-1), "a thousand repetitions": changed(repeat=1000), "no array of this number": changed(arguments__0__array=9),
    "objects in an array": changed(arrays__0__dtype="object"), "a shape of text": changed(arrays__0__shape="4"),
    "data that is no base64": changed(arrays__0__data="*" * 24), "data of another length": changed(arrays__0__data="AAAA"),
    "a value of text": changed(arguments__2__value="é"), "a tensor map of nothing": changed(arguments__0__tensor="AAAA"),
    "a copy past its array": changed(copies__0__rows=3), "a copy of no array": changed(copies__0__source=2),
    "a copy to rows as they were": changed(copies__0__target_pitch=6), "maps of other names": changed(code__maps=["map_B", "map_A"]),
    "a number for a variable": changed(symbols={"mask": 1}), "variables in a list": changed(symbols=[]),
}  # fmt: skip


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_job_is_refused(message):
    with pytest.raises(LaunchError, match="nothing was launched"):
        protocol.loads(message)


@pytest.mark.parametrize("number", [10**400, -(10**400), float("inf"), float("nan"), None, True, "1"], ids=lambda number: str(number)[:5])
@pytest.mark.parametrize("name", ["seconds", "alpha", "beta"])
def test_a_number_that_no_float_holds_is_refused(name, number):
    message = json.loads(protocol.dumps(PRODUCT))
    (message if name == "seconds" else message["problem"])[name] = number
    with pytest.raises(LaunchError, match=f"field '{name}' is .*, which cannot be, so nothing was launched"):
        protocol.loads(json.dumps(message).encode())


@pytest.mark.parametrize("block", [[1, 128], [0, 128, 128], [1, -1, 128], [1, 128, 1.0], [1, 128, 1 << 40], "1", {}], ids=str)
def test_blocks_that_cannot_share_a_factor_are_refused(block):
    message = json.loads(protocol.dumps(FACTORS))
    message["problem"]["scale_block"] = block
    with pytest.raises(LaunchError, match="nothing was launched"):
        protocol.loads(json.dumps(message).encode())


def test_another_version_names_both():
    with pytest.raises(LaunchError, match="speaks version 7 of the shared GPU's protocol and the service version 4"):
        protocol.loads(changed(version=7))


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (changed(arrays__1__shape=[1 << 20, 1 << 11]), "take 4.3 GB on the shared GPU"),
        (changed(arrays__0__shape=[1 << 30]), "are 4295 MB, and the shared GPU takes"),
        (b" " * (protocol.MOST_MESSAGE + 1), "takes 64 MB at most"),
        (protocol.dumps(ProductJob(CODE, Problem(1 << 15, 1 << 15, 64), 3, 1.0)), "take more than the"),
    ],
    ids=["made", "returned", "message", "product"],
)
def test_what_is_too_large_is_refused_by_its_size(message, sentence):
    with pytest.raises(LaunchError, match=sentence):
        protocol.loads(message)


def test_an_argument_of_another_size_than_its_parameter_is_refused():
    job = protocol.loads(changed(arguments__2__value="AAAAAAAAAAA="))
    with pytest.raises(LaunchError, match="8 bytes came for a parameter of 4"):
        job.values([made.array() for made in job.arrays], CODE.compiled().parameters)
