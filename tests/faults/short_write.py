"""A system call that writes half of what it was given: strace can't do that, so this can.

ptrace(2) on one thread: at its N-th pwrite64 the length is made smaller before the kernel sees it.
Only on x86-64, since it knows the names of registers. Standard library only.
"""

import ctypes
import errno
import os
import platform
import signal
import threading

PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_DETACH, PTRACE_SYSCALL = 12, 13, 17, 24
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
PTRACE_O_TRACESYSGOOD = 1
WALL = 0x4000_0000  # waitpid: threads too
PWRITE64 = 18  # its number on x86-64
# user_regs_struct of sys/user.h: 27 words; those that are used here.
REGISTERS, RAX, RDX, ORIG_RAX = 27, 10, 12, 15


def is_possible():
    return platform.machine() == "x86_64"


class ShortWrite(threading.Thread):
    """The N-th pwrite64 of a thread is short. `came` says whether there was one."""

    def __init__(self, thread_id, number):
        super().__init__(daemon=True)
        self.thread_id, self.left = thread_id, number
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long
        self.attached, self.came, self.ends = threading.Event(), False, False

    def ptrace(self, request, data=None):
        """False if the thread is gone."""
        if self.libc.ptrace(request, self.thread_id, None, data) >= 0:
            return True
        code = ctypes.get_errno()
        if code == errno.ESRCH:
            return False
        raise OSError(code, os.strerror(code))

    def run(self):
        # All of it on this thread: only who attached may go on.
        if not self.ptrace(PTRACE_SEIZE, ctypes.c_void_p(PTRACE_O_TRACESYSGOOD)):
            return
        self.ptrace(PTRACE_INTERRUPT)
        self.attached.set()
        while True:
            try:
                _, status = os.waitpid(self.thread_id, WALL)
            except ChildProcessError:
                return
            if not os.WIFSTOPPED(status):
                return
            stopped = os.WSTOPSIG(status)
            passed_on = None
            if stopped == signal.SIGTRAP | 0x80:
                self.look()
            elif status >> 16 == 0:
                passed_on = ctypes.c_void_p(stopped)
            over = self.came or self.ends
            if not self.ptrace(PTRACE_DETACH if over else PTRACE_SYSCALL, passed_on) or over:
                return

    def look(self):
        """The thread is about to enter a system call, or has left it."""
        registers = (ctypes.c_ulonglong * REGISTERS)()
        if not self.ptrace(PTRACE_GETREGS, ctypes.addressof(registers)):
            return
        enters = registers[RAX] == 2**64 - errno.ENOSYS
        if not enters or registers[ORIG_RAX] != PWRITE64:
            return
        self.left -= 1
        if self.left == 0:
            # Half a sector is cut, too.
            registers[RDX] = max(1, registers[RDX] // 2 - 3)
            self.came = self.ptrace(PTRACE_SETREGS, ctypes.addressof(registers))

    def stop(self):
        """Lets the thread go on at its next system call, or when it is asked."""
        self.ends = True
