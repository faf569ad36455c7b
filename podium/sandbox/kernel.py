"""What a process does to itself before it becomes a command: Landlock, seccomp, capabilities, by system calls.

Runs in a process with one thread, between fork and exec; imports the standard library only. Numbers and layouts are of
``linux/landlock.h``, ``linux/seccomp.h`` and ``linux/capability.h``; system calls of x86-64 and of 64-bit ARM.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = [
    "LANDLOCK_ABI",
    "allow",
    "confine",
    "die_with_parent",
    "filter_of_calls",
    "landlock_abi",
    "new_ruleset",
    "reap_orphans",
]

LANDLOCK_ABI: Final = 6
"""Linux 6.12: the first that keeps signals and abstract sockets within a sandbox."""

_libc: Final = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38

_LANDLOCK_CREATE: Final = 444
_LANDLOCK_ADD_RULE: Final = 445
_LANDLOCK_RESTRICT: Final = 446
_RULE_PATH_BENEATH: Final = 1
_ALL_FS: Final = 0xFFFF
"""All rights of ABI 6, from EXECUTE to IOCTL_DEV."""
_FILE_FS: Final = 0b1100_0000_0000_0111
"""Those of a file: EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV."""
_READ_FS: Final = 0b1101
"""EXECUTE, READ_FILE, READ_DIR."""
_ALL_TCP: Final = 0b11
_ALL_SCOPES: Final = 0b11


class _Calls(NamedTuple):
    """Numbers of system calls on one architecture."""

    architecture: int
    """As the kernel's audit names it."""
    socket: int
    refused: tuple[int, ...]
    """Those that no sandbox has."""
    ipc: tuple[int, ...]
    """System V objects and POSIX message queues, which no process has to hold open."""
    of_process: tuple[int, ...]
    """Those whose first argument is a process, 0 for the caller."""
    setpriority: int
    ioprio_set: int
    namespaces: tuple[int, ...]
    """Those whose first argument has the flags of ``clone``."""


_MACHINES: Final = {
    "x86_64": _Calls(
        architecture=0xC000003E,
        socket=41,
        # add_key, request_key, keyctl, perf_event_open, bpf, userfaultfd, io_uring_{setup,enter,register}
        refused=(248, 249, 250, 298, 321, 323, 425, 426, 427),
        # shmget, shmat, shmctl, semget, semop, semctl, msgget, msgsnd, msgrcv, msgctl, semtimedop, mq_open, mq_unlink
        ipc=(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),
        # sched_setparam, sched_setscheduler, sched_setaffinity, prlimit64, sched_setattr
        of_process=(142, 144, 203, 302, 314),
        setpriority=141,
        ioprio_set=251,
        namespaces=(56, 272),  # clone, unshare
    ),
    "aarch64": _Calls(
        architecture=0xC00000B7,
        socket=198,
        refused=(217, 218, 219, 241, 280, 282, 425, 426, 427),
        ipc=(194, 196, 195, 190, 193, 191, 186, 189, 188, 187, 192, 180, 181),
        of_process=(118, 119, 122, 261, 274),
        setpriority=140,
        ioprio_set=30,
        namespaces=(220, 97),
    ),
}
_CLONE3: Final = 435
_CLONE_NEWUSER: Final = 0x1000_0000
_Instruction = tuple[int, int, int, int]
"""Of BPF: what, jumps if it holds and if not, and a number."""
_X32: Final = 0x4000_0000
"""Bit of system calls of x32, which a kernel may have: the same calls by other numbers."""
_AF_NETLINK: Final = 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF_0000
_REFUSE: Final = 0x0005_0000 | errno.EPERM
_MISSING: Final = 0x0005_0000 | errno.ENOSYS
_KILL: Final = 0x8000_0000
_NUMBER_AT, _ARCH_AT, _FIRST_AT, _SECOND_AT, _THIRD_AT = 0, 4, 16, 24, 32
"""Offsets in ``struct seccomp_data``; of arguments the lower half, which is all that the kernel takes of an int."""


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int, what: str) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), what)


def die_with_parent() -> None:
    """Have this process killed when the one that forked it ends, also after an exec."""
    _prctl(_PR_SET_PDEATHSIG, 9, "PR_SET_PDEATHSIG")


def reap_orphans() -> None:
    """Make this process the parent of its descendants whose own parents have ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none, or a filter of system calls refuses it."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


def new_ruleset(*, tcp: bool) -> int:
    """Return the descriptor of a ruleset of Landlock that allows no file, and no signals to outside of it.

    Args:
        tcp: whether sockets can listen and connect; the filter says which sockets there are.

    Raises:
        OSError: the kernel refused.
    """
    attributes = struct.pack("QQQ", _ALL_FS, 0 if tcp else _ALL_TCP, _ALL_SCOPES)
    return _checked(_libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0), "Landlock")


def allow(ruleset: int, readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> None:
    """Add to a ruleset.

    Args:
        ruleset: its descriptor.
        readable: files and directories; programs in them can be run.
        writable: directories.
        devices: files that can be read and written, and not removed.

    Raises:
        OSError: a path is not there, or the kernel refused.
    """
    for paths, rights in ((readable, _READ_FS), (writable, _ALL_FS), (devices, _READ_FS | _FILE_FS)):
        for path in paths:
            _allow(ruleset, path, rights)


def confine(ruleset: int, filtered: bytes) -> None:
    """Confine this process, and all that it will start, for good: files, TCP, signals, system calls, capabilities.

    Args:
        ruleset: its descriptor; it is closed.
        filtered: a program of `filter_of_calls`.

    Raises:
        OSError: the kernel refused; the process may be confined in part, and must end.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")
    _drop_capabilities()
    _checked(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)
    program = ctypes.create_string_buffer(filtered, len(filtered))
    head = struct.pack("HxxxxxxP", len(filtered) // 8, ctypes.addressof(program))
    _checked(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), head, 0, 0), "seccomp")


def _allow(ruleset: int, path: str, rights: int) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= _FILE_FS
        rule = struct.pack("=Qi", rights, opened)
        _checked(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), path)
    finally:
        os.close(opened)


def _drop_capabilities() -> None:
    """Give up what root can do beyond its own files: modules, namespaces, others' processes and files."""
    if os.geteuid() != 0:
        return  # without privileges that are new there are none
    capability = 0
    while _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) == 0:
        capability += 1
    if ctypes.get_errno() != errno.EINVAL:  # else the first that this kernel does not have
        _checked(-1, "PR_CAPBSET_DROP")
    _checked(_libc.capset(struct.pack("Ii", 0x2008_0522, 0), bytes(24)), "capset")


def filter_of_calls(families: Iterable[int], *, namespaced: bool) -> bytes:
    """Return a filter of system calls: sockets of these families only; no io_uring, keyring or bpf.

    Of netlink there is only routing, which tells programs the addresses that there are.

    Args:
        families: of sockets.
        namespaced: whether the command has namespaces of its own. Without them the filter refuses also what outlives it
            (System V objects, POSIX queues), limits, priority and processors of other processes, and user namespaces.
            ``clone3``, whose flags no filter can read, is answered as by an old kernel: libraries use ``clone`` then.

    Raises:
        OSError: the numbers of this machine's system calls are not known here.
    """
    if os.uname().machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {os.uname().machine}")
    calls = _MACHINES[os.uname().machine]
    program = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, calls.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        *_for(calls.refused if namespaced else (*calls.refused, *calls.ipc), [(_RETURN, 0, 0, _REFUSE)]),
    ]
    if not namespaced:
        program += [
            *_for(calls.of_process, [*_only(_FIRST_AT, 0), (_RETURN, 0, 0, _ALLOW)]),
            # PRIO_PROCESS and IOPRIO_WHO_PROCESS, of the caller
            *_for([calls.setpriority], [*_only(_FIRST_AT, 0), *_only(_SECOND_AT, 0), (_RETURN, 0, 0, _ALLOW)]),
            *_for([calls.ioprio_set], [*_only(_FIRST_AT, 1), *_only(_SECOND_AT, 0), (_RETURN, 0, 0, _ALLOW)]),
            *_for(
                calls.namespaces,
                [
                    (_LOAD, 0, 0, _FIRST_AT),
                    (_ANY_BIT, 0, 1, _CLONE_NEWUSER),
                    (_RETURN, 0, 0, _REFUSE),
                    (_RETURN, 0, 0, _ALLOW),
                ],
            ),
            *_for([_CLONE3], [(_RETURN, 0, 0, _MISSING)]),
        ]
    program += [(_EQUAL, 1, 0, calls.socket), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST_AT)]
    for family in families:
        program += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    program += [(_EQUAL, 1, 0, _AF_NETLINK), (_RETURN, 0, 0, _REFUSE), (_LOAD, 0, 0, _THIRD_AT)]
    program += [(_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("HBBI", *each) for each in program)


def _for(numbers: Sequence[int], answer: list[_Instruction]) -> list[_Instruction]:
    """Return what answers these system calls, and goes on for others: the last comparison jumps over the answer."""
    last = len(numbers) - 1
    comparisons = [(_EQUAL, last - at, 0 if at < last else len(answer), each) for at, each in enumerate(numbers)]
    return [*comparisons, *answer]


def _only(argument: int, value: int) -> list[_Instruction]:
    """Return what refuses a call unless an argument has this value."""
    return [(_LOAD, 0, 0, argument), (_EQUAL, 1, 0, value), (_RETURN, 0, 0, _REFUSE)]
