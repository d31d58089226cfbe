"""A model of how one program's warps order their loads and stores. A model, not the kernel: it runs no Triton and no
GPU.

A program is written down as what each of its warps does, in order: vector loads from the row into registers, vector
stores of registers into the row, and barriers. Lanes of a warp act together (lockstep) or, as the harsher model, each
lane is a warp of its own. Within a warp the order is the program's; between warps anything goes, except that a
barrier lets nobody pass before everybody has arrived. `explore_all` visits every interleaving (states that coincide
are merged, so the count of schedules stays exact), `explore_random` draws some. Both report how many schedules leave
the wrong row or let a load see what a store has already overwritten.

The entries that a thread handles follow Triton's blocked layout: entry = wrap * (warps * lanes * width) + (warp *
lanes + lane) * width + j, with `width` neighbouring entries a thread (sizePerThread).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

EXHAUSTIVE_ROW = 64  # entries; beyond it even few states are slow, since each carries the row


class Ordering(Enum):
    """The ordering rules of a shift kernel, by where its barriers are."""

    UNGUARDED = "no barrier"
    GUARDED = "barrier between the loads and the stores of a chunk"
    GUARDED_PREFETCH = "loads of the next chunk, then a barrier, then the stores of this chunk"
    BARRIER_AFTER_STORES = "barrier between the stores of a chunk and the loads of the next one only"


@dataclass(frozen=True)
class Load:
    """Lane i of the warp loads row entry addresses[i] into its register `register`."""

    register: int
    addresses: tuple[int, ...]


@dataclass(frozen=True)
class Store:
    """Lane i of the warp stores its register `register` to row entry addresses[i]."""

    register: int
    addresses: tuple[int, ...]


@dataclass(frozen=True)
class Barrier:
    """Every warp waits here for all others."""


Operation = Load | Store | Barrier


@dataclass(frozen=True)
class LaneProgram:
    """What each warp does, the memory it starts from, and the memory it must leave."""

    description: str
    warps: tuple[tuple[Operation, ...], ...]
    memory: tuple[int, ...]
    expected: tuple[int, ...]


@dataclass(frozen=True)
class CounterExample:
    """The shortest schedule found that goes wrong, one line a step, up to the load that saw an overwritten entry."""

    program: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.program, *(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))])


@dataclass(frozen=True)
class Exploration:
    """schedules: how many were explored; wrong: how many of them went wrong; exhaustive: whether these are all."""

    program: str
    schedules: int
    wrong: int
    exhaustive: bool
    counter_example: CounterExample | None


class TooManyStatesError(Exception):
    """An exhaustive search outgrew its limit; use `explore_random`."""


def shift_program(
    ordering: Ordering,
    *,
    row: int,
    shift: int,
    chunk: int,
    warps: int,
    lanes: int,
    width: int = 1,
    lockstep: bool = True,
) -> LaneProgram:
    """The in-place left shift of one row of `row` entries by `shift`, all of the rest needed, in ascending chunks of
    `chunk` entries.

    warps, lanes: warps a program and lanes a warp. width: neighbouring entries a thread. lockstep False models each
    lane as a warp. Raises ValueError unless chunk is a multiple of warps * lanes * width and 0 < shift.
    """
    threads = warps * lanes * width
    if chunk % threads or shift < 1:
        raise ValueError(f"chunk {chunk} must be a multiple of {threads}, and the shift {shift} at least 1")
    needed = max(row - shift, 0)
    if not lockstep:
        warps, lanes = warps * lanes, 1
    threads_text = f"{warps} warps of {lanes} lanes, {width} entries a thread"
    description = f"row of {row}, shift {shift}, chunk {chunk}, {threads_text}: {ordering.value}"
    operations = tuple(
        tuple(_shift_operations(ordering, needed, shift, chunk, _entries(warp, chunk, warps, lanes, width)))
        for warp in range(warps)
    )
    memory = tuple(range(row))
    return LaneProgram(description, operations, memory, memory[shift:] + memory[needed:] if needed else memory)


def _entries(warp: int, chunk: int, warps: int, lanes: int, width: int) -> list[list[int]]:
    """Per register of the warp's threads, the chunk entries that its lanes hold."""
    return [
        [wrap + (warp * lanes + lane) * width + neighbour for lane in range(lanes)]
        for wrap in range(0, chunk, warps * lanes * width)
        for neighbour in range(width)
    ]


def _shift_operations(
    ordering: Ordering, needed: int, shift: int, chunk: int, entries: list[list[int]]
) -> Iterator[Operation]:
    registers = len(entries)

    def loads(start: int) -> Iterator[Operation]:
        bank = start // chunk % 2 * registers  # the next chunk is loaded while this one is still held
        for register, lanes in enumerate(entries):
            live = tuple(start + entry + shift for entry in lanes if start + entry < needed)
            if live:
                yield Load(bank + register, live)

    def stores(start: int) -> Iterator[Operation]:
        bank = start // chunk % 2 * registers
        for register, lanes in enumerate(entries):
            live = tuple(start + entry for entry in lanes if start + entry < needed)
            if live:
                yield Store(bank + register, live)

    prefetch = ordering is Ordering.GUARDED_PREFETCH
    if prefetch:
        yield from loads(0)
    for start in range(0, needed, chunk):
        yield from loads(start + chunk if prefetch else start)
        if ordering in (Ordering.GUARDED, Ordering.GUARDED_PREFETCH):
            yield Barrier()
        yield from stores(start)
        if ordering is Ordering.BARRIER_AFTER_STORES:
            yield Barrier()


def sequence_length_program(*, warps: int, guarded: bool) -> LaneProgram:
    """One row's shared sequence length: every warp loads it, then one thread stores the shortened one.

    A scalar load is done by every warp, a scalar store by one thread: without a barrier between the two, a late warp
    reads the shortened length and moves its part of the row by the wrong amount. Memory: entry 0 the length, 1 the
    shortened length, 2 + w what warp w used.
    """
    original, shortened = 100, 36
    barrier: tuple[Operation, ...] = (Barrier(),) if guarded else ()
    operations: list[tuple[Operation, ...]] = []
    for warp in range(warps):
        read_and_use: tuple[Operation, ...] = (Load(0, (0,)), *barrier, Store(0, (2 + warp,)))
        write: tuple[Operation, ...] = (Load(1, (1,)), Store(1, (0,))) if warp == 0 else ()
        operations.append(read_and_use + write)
    return LaneProgram(
        f"shared sequence length, {warps} warps: {'barrier before the store' if guarded else 'no barrier'}",
        tuple(operations),
        (original, shortened, *[0] * warps),
        (shortened, shortened, *[original] * warps),
    )


@dataclass(frozen=True)
class _State:
    """Where each warp stands, what memory and registers hold, and whether a load has seen an overwritten entry."""

    counters: tuple[int, ...]
    memory: tuple[int, ...]
    registers: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]
    corrupt: bool = False


def _start(program: LaneProgram) -> _State:
    warps = len(program.warps)
    return _State((0,) * warps, program.memory, ((),) * warps)


def _finished(program: LaneProgram, state: _State) -> bool:
    return all(counter == len(warp) for counter, warp in zip(state.counters, program.warps, strict=True))


def _wrong(program: LaneProgram, state: _State) -> bool:
    return state.corrupt or state.memory != program.expected


def _at_barrier(program: LaneProgram, state: _State, warp: int) -> bool:
    counter = state.counters[warp]
    return counter < len(program.warps[warp]) and isinstance(program.warps[warp][counter], Barrier)


def _pass_barrier(program: LaneProgram, state: _State) -> _State:
    """Let all warps pass where all of them wait; passing is nobody's choice, so it is no step of a schedule."""
    while all(_at_barrier(program, state, warp) for warp in range(len(program.warps))):
        state = _State(tuple(c + 1 for c in state.counters), state.memory, state.registers, state.corrupt)
    return state


def _runnable(program: LaneProgram, state: _State) -> list[int]:
    return [
        warp
        for warp, counter in enumerate(state.counters)
        if counter < len(program.warps[warp]) and not _at_barrier(program, state, warp)
    ]


def _step(program: LaneProgram, state: _State, warp: int) -> _State:
    """The state after `warp` has done its next load or store."""
    operation = program.warps[warp][state.counters[warp]]
    counters = tuple(c + (w == warp) for w, c in enumerate(state.counters))
    held = dict(state.registers[warp])
    memory, corrupt = state.memory, state.corrupt
    if isinstance(operation, Load):
        values = tuple(memory[address] for address in operation.addresses)
        held[operation.register] = values
        corrupt |= values != tuple(program.memory[address] for address in operation.addresses)
    elif isinstance(operation, Store):
        changed = list(memory)
        for address, value in zip(operation.addresses, held.pop(operation.register), strict=True):
            changed[address] = value
        memory = tuple(changed)
    registers = tuple(tuple(sorted(held.items())) if w == warp else r for w, r in enumerate(state.registers))
    return _pass_barrier(program, _State(counters, memory, registers, corrupt))


def _describe(program: LaneProgram, state: _State, warp: int) -> str:
    operation = program.warps[warp][state.counters[warp]]
    assert not isinstance(operation, Barrier)
    verb = "loads from" if isinstance(operation, Load) else "stores to"
    line = f"warp {warp} {verb} {_ranges(operation.addresses)}"
    if isinstance(operation, Load):
        overwritten = tuple(a for a in operation.addresses if state.memory[a] != program.memory[a])
        if overwritten:
            line += f"  <- {_ranges(overwritten)} already overwritten"
    return line


def _ranges(addresses: tuple[int, ...]) -> str:
    """Addresses as runs: 0..3, 8."""
    runs: list[list[int]] = []
    for address in addresses:
        if runs and address == runs[-1][1] + 1:
            runs[-1][1] = address
        else:
            runs.append([address, address])
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in runs)


def explore_all(program: LaneProgram, *, max_states: int = 500_000) -> Exploration:
    """Every interleaving of the program's warps. Raises TooManyStatesError beyond `max_states` distinct states.

    States are visited in the order of their distance from the start, so the counter-example is a shortest one.
    """
    start = _pass_barrier(program, _start(program))
    level: dict[_State, int] = {start: 1}
    came_from: dict[_State, tuple[_State, int]] = {}
    first_corrupt: _State | None = None
    schedules = wrong = visited = 0
    while level:
        following: dict[_State, int] = {}
        for state, ways in level.items():
            warps = _runnable(program, state)
            if not warps:
                if not _finished(program, state):
                    raise ValueError(f"some warps wait at a barrier for ever: {program.description}")
                schedules += ways
                wrong += ways if _wrong(program, state) else 0
            for warp in warps:
                after = _step(program, state, warp)
                if after not in following:
                    came_from[after] = (state, warp)
                    if after.corrupt and first_corrupt is None:
                        first_corrupt = after
                following[after] = following.get(after, 0) + ways
        visited += len(following)
        if visited > max_states:
            raise TooManyStatesError(f"more than {max_states} states: {program.description}")
        level = following
    example = None if first_corrupt is None else _trace(program, first_corrupt, came_from)
    return Exploration(program.description, schedules, wrong, True, example)


def _trace(program: LaneProgram, last: _State, came_from: dict[_State, tuple[_State, int]]) -> CounterExample:
    steps: list[str] = []
    state = last
    while state in came_from:
        state, warp = came_from[state]
        steps.append(_describe(program, state, warp))
    return CounterExample(program.description, tuple(reversed(steps)))


def explore_random(program: LaneProgram, *, schedules: int, seed: int) -> Exploration:
    """`schedules` interleavings drawn with `seed`: at each step any warp that can run is as likely as any other.

    The counter-example is the shortest among the wrong schedules that were drawn, not the shortest there is.
    """
    draw = random.Random(seed)
    wrong = 0
    shortest: CounterExample | None = None
    for _ in range(schedules):
        state = _pass_barrier(program, _start(program))
        steps: list[str] = []
        while warps := _runnable(program, state):
            warp = draw.choice(warps)
            if not state.corrupt:
                steps.append(_describe(program, state, warp))
            state = _step(program, state, warp)
        if not _finished(program, state):
            raise ValueError(f"some warps wait at a barrier for ever: {program.description}")
        if _wrong(program, state):
            wrong += 1
            if state.corrupt and (shortest is None or len(steps) < len(shortest.steps)):
                shortest = CounterExample(program.description, tuple(steps))
    return Exploration(program.description, schedules, wrong, False, shortest)


def explore(program: LaneProgram, *, seed: int = 0, schedules: int = 200) -> Exploration:
    """All interleavings where they are few, else `schedules` random ones drawn with `seed`."""
    if len(program.memory) <= EXHAUSTIVE_ROW:
        try:
            return explore_all(program, max_states=20_000)
        except TooManyStatesError:
            pass  # many warps with many registers: too many interleavings even of a short row
    return explore_random(program, schedules=schedules, seed=seed)


def smallest_counter_example(ordering: Ordering, *, max_row: int = 8) -> CounterExample | None:
    """The first counter-example over all shifts of rows up to `max_row` entries by two warps of one lane, or None."""
    for row in range(2, max_row + 1):
        for shift in range(1, row):
            for chunk in (2, 4):
                found = explore_all(shift_program(ordering, row=row, shift=shift, chunk=chunk, warps=2, lanes=1))
                if found.counter_example:
                    return found.counter_example
    return None
