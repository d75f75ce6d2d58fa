/*
 * Loaded into the guest's kernel process. Up to 6.11, User Mode Linux sets the extended processor
 * state of its processes from a buffer of 2696 bytes, enough for AVX-512. A processor with more
 * state (AMX) needs all of it and returns EFAULT. This fills in the rest with the current state.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XSTATE 0x202 /* NT_X86_XSTATE */

typedef long (*ptrace_fn)(int, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
    static ptrace_fn real;
    static char all[64 << 10] __attribute__((aligned(64)));
    va_list args;

    va_start(args, request);
    pid_t pid = va_arg(args, pid_t);
    void *address = va_arg(args, void *);
    void *data = va_arg(args, void *);
    va_end(args);
    if (!real)
        real = (ptrace_fn)dlsym(RTLD_NEXT, "ptrace");
    long done = real(request, pid, address, data);
    if (done == 0 || errno != EFAULT || request != PTRACE_SETREGSET || address != (void *)XSTATE)
        return done;

    const struct iovec *given = data;
    struct iovec whole = { all, sizeof(all) };
    if (real(PTRACE_GETREGSET, pid, address, &whole) != 0)
        return -1;
    memcpy(all, given->iov_base, given->iov_len < whole.iov_len ? given->iov_len : whole.iov_len);
    return real(PTRACE_SETREGSET, pid, address, &whole);
}
