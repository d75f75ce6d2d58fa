/* System calls that transfer file data: their numbers, and which registers contain number and arguments when
 * the call returns. One part per architecture. */
#ifndef FRAGMEND_SYSCALLS_H
#define FRAGMEND_SYSCALLS_H

struct syscall {
	__u64 number;
	__u64 args[6];
};

/* Which arguments of a call through a foreign table are files. */
enum compat_files {
	FILES_NONE, /* it transfers nothing */
	FILES_FIRST,
	FILES_FIRST_SECOND, /* sendfile */
	FILES_FIRST_THIRD, /* splice, copy_file_range */
	FILES_OF_IOCBS, /* io_submit */
};

#if defined(__TARGET_ARCH_x86)

enum {
	NR_read = 0,
	NR_write = 1,
	NR_pread64 = 17,
	NR_pwrite64 = 18,
	NR_readv = 19,
	NR_writev = 20,
	NR_sendfile = 40,
	NR_io_submit = 209,
	NR_splice = 275,
	NR_preadv = 295,
	NR_pwritev = 296,
	NR_copy_file_range = 326,
	NR_preadv2 = 327,
	NR_pwritev2 = 328,
};

#define X32_BIT 0x40000000ULL
#define TS_COMPAT 0x2

static __always_inline __u64 syscall_number(struct pt_regs *regs)
{
	return regs->orig_ax;
}

/* That of the registers at an address that the verifier does not know. */
#define NUMBER_AT(regs) BPF_CORE_READ((struct pt_regs *)(regs), orig_ax)

static __always_inline int is_compat(struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

static __always_inline int is_x32(__u64 number)
{
	return !!(number & X32_BIT);
}

static __always_inline void syscall_args(struct pt_regs *regs, struct syscall *call, int compat)
{
	if (compat) {
		call->args[0] = (__u32)regs->bx;
		call->args[1] = (__u32)regs->cx;
		call->args[2] = (__u32)regs->dx;
		return;
	}
	call->args[0] = regs->di;
	call->args[1] = regs->si;
	call->args[2] = regs->dx;
	call->args[3] = regs->r10;
	call->args[4] = regs->r8;
	call->args[5] = regs->r9;
}

/* i386; and x32, whose numbers have a bit set and whose arguments are in the registers of 64-bit calls. */
static __always_inline enum compat_files compat_files(__u64 number)
{
	switch (number) {
	case 187: /* sendfile */
	case 239: /* sendfile64 */
	case X32_BIT | 40: /* sendfile */
		return FILES_FIRST_SECOND;
	case 313: /* splice */
	case 377: /* copy_file_range */
	case X32_BIT | 275: /* splice */
	case X32_BIT | 326: /* copy_file_range */
		return FILES_FIRST_THIRD;
	case 248: /* io_submit */
	case X32_BIT | 544: /* io_submit */
		return FILES_OF_IOCBS;
	case X32_BIT | 0: /* read */
	case X32_BIT | 1: /* write */
	case X32_BIT | 17: /* pread64 */
	case X32_BIT | 18: /* pwrite64 */
	case X32_BIT | 515: /* readv */
	case X32_BIT | 516: /* writev */
	case X32_BIT | 534: /* preadv */
	case X32_BIT | 535: /* pwritev */
	case X32_BIT | 546: /* preadv2 */
	case X32_BIT | 547: /* pwritev2 */
	case 3: /* read */
	case 4: /* write */
	case 145: /* readv */
	case 146: /* writev */
	case 180: /* pread64 */
	case 181: /* pwrite64 */
	case 333: /* preadv */
	case 334: /* pwritev */
	case 378: /* preadv2 */
	case 379: /* pwritev2 */
		return FILES_FIRST;
	}
	return FILES_NONE;
}

#elif defined(__TARGET_ARCH_arm64)

enum {
	NR_io_submit = 2,
	NR_read = 63,
	NR_write = 64,
	NR_readv = 65,
	NR_writev = 66,
	NR_pread64 = 67,
	NR_pwrite64 = 68,
	NR_preadv = 69,
	NR_pwritev = 70,
	NR_sendfile = 71,
	NR_splice = 76,
	NR_copy_file_range = 285,
	NR_preadv2 = 286,
	NR_pwritev2 = 287,
};

#define TIF_32BIT_BIT 22

static __always_inline __u64 syscall_number(struct pt_regs *regs)
{
	return regs->syscallno;
}

#define NUMBER_AT(regs) BPF_CORE_READ((struct pt_regs *)(regs), syscallno)

static __always_inline int is_compat(struct task_struct *task)
{
	return (task->thread_info.flags >> TIF_32BIT_BIT) & 1;
}

static __always_inline int is_x32(__u64 number)
{
	return 0;
}

static __always_inline void syscall_args(struct pt_regs *regs, struct syscall *call, int compat)
{
	call->args[0] = regs->orig_x0;
	call->args[1] = regs->regs[1];
	call->args[2] = regs->regs[2];
	call->args[3] = regs->regs[3];
	call->args[4] = regs->regs[4];
	call->args[5] = regs->regs[5];
}

/* 32-bit Arm */
static __always_inline enum compat_files compat_files(__u64 number)
{
	switch (number) {
	case 187: /* sendfile */
	case 239: /* sendfile64 */
		return FILES_FIRST_SECOND;
	case 340: /* splice */
	case 391: /* copy_file_range */
		return FILES_FIRST_THIRD;
	case 246: /* io_submit */
		return FILES_OF_IOCBS;
	case 3: /* read */
	case 4: /* write */
	case 145: /* readv */
	case 146: /* writev */
	case 180: /* pread64 */
	case 181: /* pwrite64 */
	case 361: /* preadv */
	case 362: /* pwritev */
	case 392: /* preadv2 */
	case 393: /* pwritev2 */
		return FILES_FIRST;
	}
	return FILES_NONE;
}

#endif

static __always_inline int transfers(__u64 number)
{
	switch (number) {
	case NR_read:
	case NR_write:
	case NR_pread64:
	case NR_pwrite64:
	case NR_readv:
	case NR_writev:
	case NR_sendfile:
	case NR_io_submit:
	case NR_splice:
	case NR_preadv:
	case NR_pwritev:
	case NR_copy_file_range:
	case NR_preadv2:
	case NR_pwritev2:
		return 1;
	}
	return 0;
}

#endif
