/* The few kernel structures that the recorder reads, each with only the fields that it uses.
 *
 * The loader finds the real offsets in the running kernel's BTF (CO-RE), so neither the build
 * machine's kernel nor the order of fields here matters. */
#ifndef FRAGMEND_KERNEL_H
#define FRAGMEND_KERNEL_H

/* With this, libbpf's headers take the kernel types from here. */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

/* uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1 };
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#define BTRFS_SUPER_MAGIC 0x9123683e
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFIFO 0010000
#define PF_IO_WORKER 0x10
#define EEXIST 17

/* include/linux/page-flags.h; its number depends on the configuration. */
enum pageflags { PG_head };

/* include/linux/blk_types.h */
enum { REQ_OP_READ = 0, REQ_OP_WRITE = 1 };
#define REQ_OP_MASK 0xff

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10, r9, r8, bx, cx, dx, si, di, orig_ax;
};
struct thread_info {
	unsigned long flags;
	__u32 status;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 orig_x0;
	int syscallno;
};
struct thread_info {
	unsigned long flags;
};
#else
#error "the recorder knows the system calls of x86_64 and arm64"
#endif

typedef struct {
	int counter;
} atomic_t;

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	struct dentry *s_root;
};

struct inode {
	__u16 i_mode;
	unsigned int i_nlink;
	unsigned long i_ino;
	__u32 i_generation;
	__s64 i_size;
	struct super_block *i_sb;
	struct hlist_head i_dentry;
};

struct btrfs_root {
	__u32 anon_dev;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

struct dentry {
	struct dentry *d_parent;
	struct inode *d_inode;
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
	unsigned int f_flags;
	__s64 f_pos;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct files_struct *files;
	struct signal_struct *signal;
	char comm[16];
};

struct address_space {
	struct inode *host;
};

struct folio {
	struct address_space *mapping;
	unsigned long index;
	/* Of a large folio, depending on the version: */
	unsigned int _nr_pages;
	unsigned long _flags_1; /* the order is in the lowest byte */
};

struct file_ra_state {
	unsigned int size;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	struct gendisk *rq_disk; /* before Linux 5.17 */
	unsigned int cmd_flags;
	unsigned int __data_len;
};

struct block_device {
	struct gendisk *bd_disk;
};

struct bvec_iter {
	unsigned int bi_size;
};

struct bio {
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	struct bvec_iter bi_iter;
};

struct kiocb {
	struct file *ki_filp;
	__s64 ki_pos;
	void (*ki_complete)(struct kiocb *, long); /* none if the caller waits */
};

struct iov_iter {
	bool data_source; /* of a write */
	unsigned long count;
};

struct io_cqe {
	__s32 res;
	int fd; /* until the request is issued */
};

struct io_kiocb {
	__u8 opcode;
	__u8 flags; /* the lowest byte of them: what the program asked for */
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
};

struct io_rsrc_node {
	unsigned long file_ptr;
};

struct io_splice {
	struct file *file_out;
	__s64 off_out;
	__s64 off_in;
	int splice_fd_in;
	unsigned int flags;
	struct io_rsrc_node *rsrc_node;
};

#pragma clang attribute pop

/* uapi/linux/aio_abi.h: the structure is in user memory, so its layout is fixed. */
struct iocb {
	__u64 aio_data;
	__u32 aio_key;
	__u32 aio_rw_flags;
	__u16 aio_lio_opcode;
	__s16 aio_reqprio;
	__u32 aio_fildes;
	__u64 aio_buf;
	__u64 aio_nbytes;
	__s64 aio_offset;
	__u64 aio_reserved2;
	__u32 aio_flags;
	__u32 aio_resfd;
};
enum { IOCB_CMD_PREAD = 0, IOCB_CMD_PWRITE = 1, IOCB_CMD_PREADV = 7, IOCB_CMD_PWRITEV = 8 };

struct iovec {
	__u64 iov_base;
	__u64 iov_len;
};

/* uapi/linux/io_uring.h */
enum {
	IORING_OP_READV = 1,
	IORING_OP_WRITEV = 2,
	IORING_OP_READ_FIXED = 4,
	IORING_OP_WRITE_FIXED = 5,
	IORING_OP_READ = 22,
	IORING_OP_WRITE = 23,
	IORING_OP_SPLICE = 30,
	IORING_OP_READ_MULTISHOT = 49,
	IORING_OP_READV_FIXED = 60,
	IORING_OP_WRITEV_FIXED = 61,
};

/* Of a request: the flags of the submission, IOSQE_FIXED_FILE and IOSQE_CQE_SKIP_SUCCESS. */
#define REQ_F_FIXED_FILE (1 << 0)
#define REQ_F_CQE_SKIP (1 << 6)

#define SPLICE_F_FD_IN_FIXED (1U << 31)

/* uapi/linux/fs.h */
#define RWF_APPEND 0x10
#define RWF_NOAPPEND 0x20

#endif
