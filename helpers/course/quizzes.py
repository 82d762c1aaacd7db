"""The quiz at the end of each part of the course: five questions, and the truth as soon as one is answered.

    quiz("memory")

Answers are kept as predictions are, and stand once the truth is shown. A wrong one is explained: each choice that is not right is
what somebody may well think. Figures are worked out when they are asked for, by the rules that the machine counts by or from what was
recorded.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from helpers.arguments import explained
from helpers.errors import CourseError
from helpers.interrupts import delayed
from helpers.model import hardware

from . import figures, steps
from .evidence import speedup
from .measures import DEFAULT_GPU
from .questions import Question, judge, question_card
from .rungs import RECORDED
from .store import Store, own

PREFIX = "quiz."  # before the part's name and the question's: none of a step's predictions
RIGHT = ("right", "exactly")


@dataclass(frozen=True)
class QuizQuestion(Question):
    """works_out: the right answer, a number or one of the choices. because: said with it. wrong: what is said of each other choice,
    besides. lesson: slug of the step below which it is asked."""

    lesson: str = ""
    works_out: Callable[[], float | str] = lambda: ""
    because: str = ""
    wrong: Mapping[str, str] = field(default_factory=dict)

    @property
    def step(self) -> int:
        return steps.get(self.lesson).number

    def truth(self) -> float | str:
        value = self.works_out()
        return value if isinstance(value, str) else float(value)

    def comment(self, answer: float | str, told: bool) -> str:
        said, truth = f"You said: <b>{html.escape(self.show(answer))}</b>.", self.truth()
        if judge(answer, truth) in RIGHT:
            return f"{said} <b>Right.</b> {html.escape(self.because)}"
        why = self.wrong.get(str(answer), "")
        return f"{said} {html.escape(why)} It is <b>{html.escape(self.show(truth))}</b>. {html.escape(self.because)}"


@dataclass(frozen=True)
class Part:
    """A part of the course. first, last: slugs of its first lesson, and of the one that ends with the quiz."""

    name: str
    title: str
    first: str
    last: str
    questions: tuple[QuizQuestion, ...]

    @property
    def lessons(self) -> range:
        return range(steps.get(self.first).number, steps.get(self.last).number + 1)


def _part(name: str, title: str, first: str, last: str, /, **asked: Mapping) -> Part:
    made = (QuizQuestion(id=f"{PREFIX}{name}.{short}", lesson=last, **row) for short, row in asked.items())
    return Part(name, title, first, last, tuple(made))


def _choice(text: str, right: str, because: str, wrong: Mapping[str, str]) -> dict:
    """A question with choices, in the order of the alphabet, so that their places say nothing. wrong: choice -> why somebody thinks so,
    and what speaks against it."""
    return {"text": text, "choices": tuple(sorted((right, *wrong))), "works_out": lambda: right, "because": because, "wrong": wrong}


def _number(text: str, unit: str, works_out: Callable[[], float], because: str) -> dict:
    return {"text": text, "unit": unit, "works_out": works_out, "because": because}


@functools.cache
def parts() -> tuple[Part, ...]:
    """The parts, in order."""
    return (_memory(), _registers(), _waiting(), _last_per_cent(), _tensor_cores(), _hopper(), _specialized(), _pieces(), _eight_bits())


def part(name: str) -> Part:
    """The part of this name. Raises CourseError with the known ones."""
    for one in parts():
        if one.name == name:
            return one
    raise CourseError(f"There is no quiz {name!r}. There are: {', '.join(one.name for one in parts())}.")


# ------------------------------------------------------------------------------------------------------------ the parts


def _memory() -> Part:
    gained = speedup("shared_tile", over="coalesced", kinds=[RECORDED])
    return _part(
        "memory", "The way to memory", "start_here", "shared_tile",
        column=_choice(
            "In a loop over k, each thread reads down a column of B: B[k * ldb + col]. The 32 lanes of a warp have 32 "
            "neighbouring columns. "
            "What are these loads?",
            "coalesced: in each turn the lanes read neighbours",
            "Hold the time still and look across the warp: 32 neighbouring floats.",
            {
                "not coalesced: each thread jumps a whole row from turn to turn":
                    "The jump lies between two instructions of one thread, and costs nothing.",
                "coalesced as long as ldb is at most 8": "How far apart two turns are plays no part.",
                "broadcast: a warp has one k": "One k, but 32 columns: 32 different floats.",
            },
        ),
        second=_number(
            "Lane n of a warp loads the float A[2 * n]. How many sectors is that?", "sectors", lambda: figures.sectors(2),
            "They reach over eight sectors, and half of what comes is thrown away.",
        ),
        tile=_number(
            "A block fetches its operands through shared memory, as in step 03, for a tile of 64 × 64, and K is 512. How many loads "
            "from global memory does each result cost?",
            "loads per result",
            lambda: float(512 * figures.global_loads(64, 64)),
            "Each element of A serves 64 results, and so does each of B.",
        ),
        less=_choice(
            f"Step 03 has a thirty-second of step 02's global loads, and is {gained.factor:.1f} times as fast (recorded, 4096³). "
            "Why no more?",
            "every operand comes from shared memory now, which gives one wavefront a cycle",
            "The loads have moved, from the caches to shared memory, and wait there for the next limit.",
            {
                "the arithmetic units are busy all the time": "They are not: shared memory feeds less than a sixth of them.",
                "shared memory is no faster than the L2 cache": "It is much nearer. But what it delivers in a cycle is limited, too.",
                "each tile must be written to shared memory first": "That is one store for 32 reads.",
            },
        ),
        lucky=_choice(
            "You take the second barrier out of step 03. Every result stays right, whatever you try. What do you know?",
            "nothing: a fast warp may overwrite what a slow one still reads",
            "A race needs no more than another order, on another GPU or another day. That is why a finding counts more than a result.",
            {
                "it was not needed: the warps of a block run in step":
                    "Only the lanes of one warp may do that. Warps run ahead of each other by any distance.",
                "it was not needed: the first barrier of the next turn is enough": "That one comes after the stores which do the damage.",
                "it was not needed on GPUs where all tests were right": "You have seen some orders of the warps, not all of them.",
            },
        ),
    )  # fmt: skip


def _registers() -> Part:
    return _part(
        "registers", "Registers and banks", "thread_tile_1d", "vectorized",
        rectangle=_number(
            "A thread computes 4 × 8 results. How many numbers does it take out of shared memory for each of its multiply-adds?",
            "numbers per multiply-add", lambda: float(figures.shared_reads(4, 8)),
            "12 numbers for one k, and 32 multiply-adds: the border of the rectangle by its area.",
        ),
        fewer=_choice(
            "A change halves the occupancy, and the kernel becomes faster. How can that be?",
            "each thread has more to do that waits for nothing",
            "What hides a wait is anything independent, of another warp or of the same one; and values in registers need not be loaded.",
            {
                "fewer warps mean fewer bank conflicts": "A conflict is among the lanes of one instruction.",
                "it cannot: something else must have changed": "It can. Step 04 has done just that, and so has its sweep.",
                "registers are faster when there are fewer warps": "They are as fast as before. There are more of them for each thread.",
            },
        ),
        stride=_number(
            "Lane n reads the float s[4 * n] from shared memory, with a 32-bit load. How many wavefronts does it take?", "wavefronts",
            lambda: figures.wavefronts(4), "Every fourth bank is met, by four lanes that want four different words.",
        ),
        same=_choice(
            "All 32 lanes of a warp read the same float from shared memory. What happens in its bank?",
            "one wavefront: one word serves all lanes",
            "A conflict takes different words of one bank.",
            {
                "32 wavefronts: all lanes meet in one bank": "They meet, and want the same word. It is read once.",
                "two wavefronts, one for each half-warp": "That is so for 128-bit loads. A 32-bit load has one phase of 32 lanes.",
                "it depends on the padding": "Wherever the word lies, it is one word.",
            },
        ),
        wide=_choice(
            "A coalesced copy is rewritten with float4. What does it save?",
            "instructions: as many sectors, a quarter of the loads",
            "The bytes are the same, and so are their sectors.",
            {
                "sectors: a quarter of them": "A request of 16 bytes a lane has 16 sectors, and there are a quarter as many requests.",
                "bank conflicts: wide stores to shared memory have none":
                    "Into a transposed tile the four floats are stored one by one all the same.",
                "checks: the GPU handles what is not aligned": "It stops there, with an error. The kernel has to check more, not less.",
            },
        ),
    )  # fmt: skip


def _waiting() -> Part:
    return _part(
        "waiting", "Warps, and what they wait for", "warp_tile", "async_copy",
        wide=_number(
            "Each lane of a warp reads 16 bytes of its own from shared memory, all side by side. How many wavefronts does this "
            "one load take?",
            "wavefronts",
            lambda: figures.wavefronts(4, 16), "512 bytes, at most 128 in a wavefront. No conflict is counted: it is what the bytes need.",
        ),
        warp=_choice(
            "Every warp computes a warp tile of its own. Is __syncwarp() enough between two steps along K?",
            "no: the tiles of A and B belong to the whole block",
            "A warp owns its part of C. What it reads was stored by all warps, and is overwritten by all.",
            {
                "yes: no warp writes another one's part of C": "That is so, and it is not C that is overwritten.",
                "yes, if there are two buffers": "With two buffers one barrier is saved. The one that is left is still for all warps.",
                "no: __syncwarp() does not order shared memory": "It does, for the lanes of one warp. The others go their way.",
            },
        ),
        order=_choice(
            "The timeline of a double buffer shows the loads of the next tile before the arithmetic of this one. What does that tell you?",
            "what can overlap: the wait for the loads has work to hide behind",
            "The timeline is the order of execution. How long anything takes is not in it.",
            {
                "the loads take no time any more": "They take as long as ever. Nobody has to wait that long.",
                "the loads end before the arithmetic begins":
                    "They begin before it. Nothing says when they end, except what needs their values.",
                "the kernel is faster than with one buffer":
                    "Not by itself: step 09 lost with the buffers alone, until registers and occupancy were right.",
            },
        ),
        arrived=_choice(
            "A thread returns from cp.async.wait_group 0. What has arrived?",
            "what this thread has copied itself",
            "Each thread knows of its own copies only. That is what the barrier behind the wait is for.",
            {
                "what its warp has copied": "Groups belong to a thread, and lanes may have different ones.",
                "what the whole block has copied":
                    "Nobody has told this thread about the others. Without a barrier, it reads what may not be there.",
                "nothing for certain: it is a hint": "It is a promise, about this thread's copies.",
            },
        ),
        ring=_number(
            "A ring of three pairs of float tiles: 128 × 16 of A, 16 × 128 of B. How many KiB of shared memory is that?", "KiB",
            lambda: figures.ring_bytes(128, 128, 16, 3) / 1024, "Four bytes for each element, two tiles a pair, three pairs.",
        ),
    )  # fmt: skip


def _last_per_cent() -> Part:
    gpu = hardware.gpu(DEFAULT_GPU)
    return _part(
        "last_per_cent", "The last per cent", "schedule", "fused_epilogue",
        whole=_choice(
            "You change how blocks are numbered, before the main loop. The loop's source stays as it is, and its machine code is "
            "another. Why?",
            "the compiler gives out the registers of a kernel all together",
            "With other values alive before it, what the loop uses comes to lie in other registers, in other banks, at other places.",
            {
                "the compiler mixes code from before the loop into it": "It may, but it need not: where a value lies matters already.",
                "the machine code depends on the launch": "It is made before there is one.",
                "it cannot be: the same source gives the same code": "The same kernel does. A loop is a part of one.",
            },
        ),
        fill=_number(
            f"A product of 1024³ with tiles of 256 × 128, one block for each, on an {gpu.name} with {gpu.sms} multiprocessors. "
            "How many of them have "
            "work?", "multiprocessors", lambda: min(gpu.sms, figures.blocks(1024, 1024, 256, 128)),
            "A large tile is a bet on a large product.",
        ),
        again=_choice(
            "A search found the best tile for 4096³ on one GPU. You have 1024³, and another GPU. What about the tile?",
            "search again: size and multiprocessors decide what fills the GPU",
            "What can be kept is the kernel, the space, and the order in which to try.",
            {
                "keep it: it makes the fewest loads": "A tile that leaves most of the GPU idle may load as little as it likes.",
                "keep it, if the other GPU has as much shared memory": "That says whether it runs, not how well.",
                "halve it: the product has a quarter of the edge": "Tiles do not scale with the product. They fill multiprocessors.",
            },
        ),
        slices=_choice(
            "A thin product: K is cut into eight slices, each summed by blocks of its own. What is there more of?",
            "traffic: parts of C are stored, and read again",
            "The multiply-adds are the same, on more blocks. Their parts have to be added up.",
            {
                "multiply-adds: the slices overlap": "They do not: each k belongs to one slice.",
                "loads of A and B: each slice needs all of both": "Each needs its own columns of A and rows of B.",
                "nothing: that is why it is faster": "It is faster because more multiprocessors work, and in spite of what it costs.",
            },
        ),
        bytes=_number(
            "Bias and ReLU in a kernel of their own, behind a product in FP32. How many bytes does that pass move for each "
            "element of C?",
            "bytes per element",
            lambda: 2 * figures.FLOAT, "It reads C and writes it again. The fused epilogue has each element in a register.",
        ),
    )  # fmt: skip


def _tensor_cores() -> Part:
    return _part(
        "tensor_cores", "Tensor cores", "wmma", "mma_sync",
        operations=_number(
            "One mma.m16n8k16 of a warp: how many floating-point operations is that, a multiply-add being two?", "operations",
            lambda: float(2 * 16 * 8 * 16), "An FFMA of a warp is 64 of them.",
        ),
        loads=_number(
            "An ldmatrix.x4 brings four matrices of 8 × 8 elements of 16 bits. How many wavefronts of shared memory does it take at least?",
            "wavefronts", lambda: float(figures.wavefronts_of(4 * 8 * 8 * 2)),
            "Swizzle and padding are there so that it takes no more than that.",
        ),
        coarse=_choice(
            "FP16 and BF16 have 16 bits each. What does a product pay for taking BF16?",
            "digits: its factors are rounded eight times as coarsely",
            "Three bits of the fraction went to the exponent, and with them the range of FP32 came.",
            {
                "speed: the tensor cores take it at half the rate":
                    "With sums in FP32 both have the same rate, on every GPU that knows both.",
                "range: numbers beyond 65504 become infinite": "That is FP16's weakness. BF16 reaches as far as FP32.",
                "its sums: they are kept in BF16 as well": "The sums of both are FP32. The last rounding is that of C.",
            },
        ),
        pieces=_choice(
            "Both keep eight rows of a matrix out of each other's banks: longer rows, and pieces that trade places. "
            "What speaks for the second?",
            "it takes no room: tiles are as long as their data",
            "Which is another stage of the ring, or a larger tile.",
            {
                "it costs no instruction": "Places have to be computed, by who stores and by who reads; if all goes well, before the loop.",
                "it is free of conflicts whatever is read": "It is made for the reads of ldmatrix. Others meet as before.",
                "its rows begin at multiples of 16 bytes, and padded rows do not": "They do as well: eight elements more are 16 bytes.",
            },
        ),
        zeros=_choice(
            "The same kernel, the same sizes, and more TFLOPS on matrices of zeros than on random numbers. Why?",
            "nothing toggles: it takes less power, so the clock stays high",
            "So tensor cores are timed on random numbers, and in turn with cuBLAS.",
            {
                "tensor cores leave out products with 0": "Only where a kernel asks for structured sparsity, and says which are left out.",
                "zeros are compressed on their way from memory": "As many sectors are moved, and as many wavefronts.",
                "the first launches were timed, before the card was warm": "That would help random numbers as much.",
            },
        ),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- a reader's


@dataclass(frozen=True)
class Score:
    """right and answered: of the questions of one quiz, or of all."""

    right: int
    answered: int
    of: int


def score(of: str | None = None, store: Store | None = None) -> Score:
    """What the reader has answered of one part's quiz, or of all."""
    latest = {answer.question: answer for answer in (store or own()).answers() if answer.question.startswith(PREFIX)}
    asked = [question for one in parts() if of in (None, one.name) for question in one.questions]
    answers = [latest[question.id] for question in asked if question.id in latest]
    return Score(sum(judge(answer.answer, answer.truth) in RIGHT for answer in answers), len(answers), len(asked))


@dataclass(frozen=True)
class Quiz:
    """The quiz of one part, as a notebook shows it."""

    part: Part

    def __str__(self) -> str:
        found = score(self.part.name)
        return f"{self.part.title}: {found.answered} of {found.of} questions answered, {found.right} right."

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        from IPython.display import display

        with delayed():
            import ipywidgets as widgets

            from helpers.still import Kept

        lessons = self.part.lessons
        on = f"step {lessons[0]:02}" if len(lessons) == 1 else f"steps {lessons[0]:02} to {lessons[-1]:02}"
        head = widgets.HTML(f"<b>{html.escape(self.part.title)}</b>: five questions on {on}. An answer stands.")
        display(Kept([head, *(question_card(question, own()) for question in self.part.questions)]))


@explained
def quiz(name: str) -> Quiz:
    """The quiz of a part, by its name. Raises CourseError with the known ones."""
    return Quiz(part(name))


def _hopper() -> Part:
    return _part(
        "hopper", "Hopper", "tma_wgmma", "tma_wgmma",
        operations=_number(
            "One wgmma.m64n256k16 of a warpgroup: how many floating-point operations is that, a multiply-add being two?", "operations",
            lambda: float(2 * 64 * 256 * 16), "As much as 128 mma.m16n8k16.",
        ),
        announced=_number(
            "A stage holds 128 × 64 elements of A and 64 × 256 of B, 16 bits each. How many bytes must its mbarrier be told to expect?",
            "bytes", lambda: float((128 * 64 + 64 * 256) * 2),
            "At an edge as well: what lies outside of the matrix arrives as zeros, and counts.",
        ),
        parity=_choice(
            "An mbarrier is about to be used for the third time, and a thread waits for parity 1. What happens?",
            "it goes on at once: the second phase, of parity 1, is over",
            "The third phase has parity 0. A wait names one of two phases, the current one or the one before, by its parity.",
            {
                "it waits until the third use is over": "The third phase has parity 0: 0, 1, 0.",
                "it waits forever": "A parity comes up again with every second phase, and here it is that of the phase just over.",
                "the barrier counts an arrival more": "Waiting is not arriving. Only arrivals and bytes end a phase.",
            },
        ),
        swizzle=_choice(
            "Who computes the swizzle of 128 bytes in this kernel?",
            "the hardware, twice: the copy by the tensor map, and wgmma by the matrix descriptor",
            "The kernel only names the mode in both places. If they differ, the product is wrong, and on a GPU nothing else says so.",
            {
                "one thread, before it starts the copy": "It gives a column and a row of the matrix, and where the box shall begin.",
                "the course, when it makes the tensor map": "The map says which mode. Nothing has been moved then.",
                "nobody: the tile lies as in the matrix": "Then eight rows of it would meet in the same banks.",
            },
        ),
        registers=_choice(
            "No fragment of A or B is in a register any more. What are the registers for?",
            "the sums: 128 in each thread, and little else",
            "64 rows of 256 columns over 128 threads. They are why a block has no more than three such warpgroups.",
            {
                "addresses of the tiles": "A descriptor is two registers, and the coordinates of a copy are one thread's business.",
                "tiles on their way from global memory": "Those go past the registers, as since lesson 10.",
                "nothing: wgmma keeps its sums in shared memory": "On Hopper the sums are in registers. sm_100 has a memory for them.",
            },
        ),
    )  # fmt: skip


def _specialized() -> Part:
    return _part(
        "specialized", "Different work", "warp_specialized", "warp_specialized",
        tiles=_number(
            "C has 4096 × 4096 elements, a tile 256 × 128, and 132 blocks stay. How many tiles does the busiest block compute?", "tiles",
            lambda: float(-(-((4096 // 256) * (4096 // 128)) // 132)), "512 tiles by 132 blocks is 3.9: the last round is nearly full.",
        ),
        registers=_number(
            "One warpgroup keeps 40 registers in each of its 128 threads, two have 232. How many registers is that?", "registers",
            lambda: float(128 * (40 + 2 * 232)),
            "Of the 65,536 of a multiprocessor. Without setmaxnreg each of 384 threads would have 168 at most.",
        ),
        round=_choice(
            "The producer waits at <code>empty</code> for parity 1 before it fills a stage for the very first time. "
            "Why does it not wait forever?",
            "the phase before the first counts as over, and its parity is 1",
            "The barrier is in phase 0, so the one of parity 1 is behind it. The same line serves the first round and all others.",
            {
                "the consumers arrive once before the loop": "Some kernels do it so. This one needs no such arrival.",
                "an mbarrier is initialised as ended": "It is in phase 0, which is not over: a wait for parity 0 would not return.",
                "the first copies need no wait, and the loop leaves it out": "It is the same instruction in all rounds.",
            },
        ),
        together=_choice(
            "With clusters of two, how many arrivals end a phase of <code>empty</code>?",
            "four: two consumers in each of two blocks",
            "Each block copies into both, so it must know that both blocks have read the stage.",
            {
                "two: the consumers of this block": "The other block's may still read what this one's copy would overwrite there.",
                "one: the producer's": "It waits there. Who reads arrives.",
                "256: every thread that multiplies": "One thread arrives for its warpgroup, whose products it has waited for.",
            },
        ),
        zeros=_choice(
            "A kernel is timed on matrices of zeros and is 9 % faster. What has been learned?",
            "how much power the numbers cost: fewer bits toggle, and the clock stays higher",
            "Nothing is skipped. Ratios are worth something only on the same data and in turn, at the same temperature and clock.",
            {
                "the tensor cores skip zeros": "They do not, unless another instruction says so, for sparse matrices.",
                "zeros are compressed on their way": "The copies move as many bytes as ever.",
                "the kernel is limited by memory": "Then numbers that take as many bytes would take as long.",
            },
        ),
    )  # fmt: skip


def _pieces() -> Part:
    return _part(
        "pieces", "Pieces of numbers", "fp32_on_tensor_cores", "fp32_on_tensor_cores",
        products=_number(
            "Numbers are written as four pieces, each far smaller than the one before. Of the sixteen products of pieces those are kept "
            "that are no smaller than the first piece times the fourth. How many?", "products",
            lambda: float(sum(i + j <= 5 for i in range(1, 5) for j in range(1, 5))),
            "4 + 3 + 2 + 1. With two pieces it is 2 + 1, with three 3 + 2 + 1.",
        ),
        memory=_number(
            "A has 4096 × 4096 floats. How many MiB do its pieces take, three of BF16 for each float?", "MiB",
            lambda: 4096 * 4096 * 3 * 2 / 2**20, "A itself takes 64. Two pieces of FP16 take as much as the float that they stand for.",
        ),
        scale=_choice(
            "Which factors may A be multiplied by before it is split, so that C can be put right by one multiplication for each result?",
            "one for every row",
            "C's row i is made from A's row i alone, so its factor is common to the whole sum.",
            {
                "one for every column": "A column of A is one k: the factor differs from term to term of a sum.",
                "one for every element": "Then no two terms of a sum share a factor.",
                "none: a factor changes the digits": "Not one that is a power of two: it changes the exponent alone.",
            },
        ),
        cut=_choice(
            "All numbers are positive, K is 8192, and the sums stay in the tensor cores. What do the errors look like?",
            "nearly all results are too small, and the longer K the more",
            "Each addition drops what lies below its last bit, always towards zero.",
            {
                "as many results are too large as too small": "That is so where additions round to the nearest number.",
                "the errors are those of FP32, since the sums are FP32 numbers": "They are stored as such. The addition is shorter.",
                "the results are exact until they overflow": "Products of FP16 are exact. Their sums are not.",
            },
        ),
        bits=_choice(
            "Why do three pieces of BF16 serve numbers for which two of FP16 do not?",
            "their exponents reach as far as those of float",
            "BF16 has 8 bits of exponent, FP16 has 5. With 8 bits of digits to a piece it takes three pieces.",
            {
                "a BF16 number has more digits than an FP16 number": "It has fewer: 8 bits, and FP16 has 11.",
                "tensor cores round products of BF16 and not those of FP16": "Products of either are exact before they are added.",
                "six products have a longer accumulator than three": "The accumulator is the same.",
            },
        ),
    )  # fmt: skip


def _eight_bits() -> Part:
    return _part(
        "eight_bits", "Eight bits", "fp8", "fp8",
        stored=_number(
            "The largest magnitude of a block is 56. How large is the E4M3 number that stands for 56?", "as stored",
            lambda: 448.0, "The factor is 56 / 448, an eighth: the largest number of a block is stored as the largest of the format.",
        ),
        memory=_number(
            "A is 4096 × 4096. How many per cent do its factors, one in FP32 for every 128 numbers of a row, add to its bytes?", "per cent",
            lambda: 100 * 4 / 128, "4 bytes for 128.",
        ),
        shared=_choice(
            "Why is it enough to multiply a sum of 128 products by the factors of their block, in place of each product?",
            "all products of the sum have the same two factors",
            "The block of A's row has one, the block of B's columns another, for the same 128 k.",
            {
                "the factors are powers of two": "They may be any float.",
                "the tensor cores multiply them": "On Hopper they know no factors.",
                "rounding makes no difference at 8 bits": "It does; but the sums are made in more bits than that.",
            },
        ),
        rows=_choice(
            "A few columns of A are 60000 times as large as the others. With which factors are the others as exact as the format allows?",
            "one for 128 elements of a row, in all blocks without such a column",
            "An outlier ruins the blocks that hold it, and no others.",
            {
                "one for each row": "Every row has an element in each of these columns.",
                "one for the whole matrix, if it is small enough": "Then the outliers overflow.",
                "none: E4M3 is a floating-point format": "It reaches from 2^-9 to 448, and has few digits at the lower end.",
            },
        ),
        release=_choice(
            "Why does every warp of a consumer arrive at the barrier empty, where in step 17 one thread arrives for its warpgroup?",
            "the threads themselves read factors from the stage, and a warp may be behind the others",
            "A wait for wgmma says that the tensor cores have read the tiles. It says nothing of another warp's loads.",
            {
                "four arrivals are faster than one": "They cost a little more.",
                "mbarriers count warps": "They count arrivals, as many as init says.",
                "a stage holds four factors": "It holds one for each row of the tile, and one for its columns.",
            },
        ),
    )  # fmt: skip
