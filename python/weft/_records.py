"""What calls report: faults, past calls, memory. Plain values, which can be compared, printed and pickled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from weft._core import Config, Errc


class Fault(NamedTuple):
    """The record of a failed call (weft/error.hpp)."""

    code: Errc
    rank: int  # the rank that wrote this record
    peer: int  # world rank to blame: late, dead, or different; -1: no single one is known
    reporter: int  # peer_failed: the rank that found it, and ...
    reported: Errc  # ... as what
    epoch_wanted: int  # number of the call that failed
    epoch_seen: int  # the newest call that `peer` was seen to have entered
    operation: str  # the call that failed: "all_reduce sum bf16[8192] one-shot tag 0"
    theirs: str  # mismatch: the call of `peer`, if ranks share a host
    reason: str  # capacity, overflow: the number that does not fit, and its limit; NCCL's faults: its words; timeout,
    # peer_died, peer_failed: the round that `peer` enqueued last, or why it rejected a call, if ranks share a host


class Error(RuntimeError):
    """A call was rejected, or failed: str() says why, `fault` has the record.

    A rejected call has sent nothing, and the next call works. A failed one ends the communicator on every rank.
    """

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message, fault)

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def fault(self) -> Fault:
        """The record, with all that is known."""
        fault: Fault = self.args[1]
        return fault

    @property
    def code(self) -> Errc:
        """Why: weft.Errc.timeout, for example."""
        return self.fault.code

    @property
    def rank(self) -> int:
        """The rank that saw it; -1 for a rejected call."""
        return self.fault.rank

    @property
    def peer(self) -> int:
        """The world rank to blame; -1: no single one is known."""
        return self.fault.peer

    @property
    def operation(self) -> str:
        """The call that failed, in words; empty for a rejected call."""
        return self.fault.operation


class CallRecord(NamedTuple):
    """One past call of a group, from the flight recorder."""

    number: int  # of the calls that this rank made on the group, from 0
    operation: str
    time: float  # seconds since the epoch, as time.time() has it


class MemoryUse(NamedTuple):
    """Bytes that a communicator holds on each rank."""

    window: int  # that peers write to; release() frees it
    control: int  # kept until the communicator's end


class ExchangeMemory(NamedTuple):
    """Bytes that an exchange takes on each rank, and tokens that its buffers hold."""

    window: int  # its buffers and tables
    output: int  # of the caller: dispatch's outputs
    ring_rows: int  # places for each rank's rows, as given or as chosen for 0; 0: there is no ring
    half_tokens: int  # most tokens of a rank in a half, a send or a wait alone


class HostCount(NamedTuple):
    """A word of a dispatch's host_counts."""

    value: int  # rows of an expert, or tokens of a source
    stamp: int  # odd, and another one for each dispatch; 0: no dispatch has written the word


class RowRange(NamedTuple):
    """Rows begin ... end - 1."""

    begin: int
    end: int


def config_of(options: dict[str, Any]) -> Config:
    """A pickled Config from its options."""
    from weft._core import Config

    return Config(**options)
