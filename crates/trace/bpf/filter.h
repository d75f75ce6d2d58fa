/* Which accesses are wanted: by file and by task. */
#ifndef FRAGMEND_FILTER_H
#define FRAGMEND_FILTER_H

#define MAX_DEPTH 1024 /* directories above a file; accesses to deeper files are counted as unplaced */
#define STEPS 64 /* directories per call of climb() */

enum verdict { OUTSIDE, BELOW, UNPLACED };

/* The device number that `stat` returns. Each subvolume of Btrfs has its own, and inode numbers are unique
 * only within it. */
static __always_inline __u32 device_of(struct inode *inode)
{
	struct btrfs_inode *btrfs;

	if (config.btrfs && bpf_core_type_exists(struct btrfs_inode) &&
	    BPF_CORE_READ(inode, i_sb, s_magic) == BTRFS_SUPER_MAGIC) {
		btrfs = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
		return BPF_CORE_READ(btrfs, root, anon_dev);
	}
	return BPF_CORE_READ(inode, i_sb, s_dev);
}

/* A walk from a directory entry up to a root. */
struct climb {
	__u64 at;
	__u32 verdict;
	__u32 ended;
};

/* A few steps of the walk. Each inode is compared with the roots, which user space enters with generation 0,
 * because not every file system has generations. Global, so that the verifier checks it once and not once per
 * caller and iteration. */
__attribute__((noinline)) int climb(struct climb *climb)
{
	struct file_key key = {};
	struct dentry *dentry, *parent;
	struct inode *inode;
	int step;

	if (!climb)
		return 0;
	dentry = (void *)climb->at;
	for (step = 0; step < STEPS; step++) {
		climb->ended = 1;
		if (!dentry)
			return 0;
		inode = BPF_CORE_READ(dentry, d_inode);
		key.inode = BPF_CORE_READ(inode, i_ino);
		key.device = device_of(inode);
		if (bpf_map_lookup_elem(&roots, &key)) {
			climb->verdict = BELOW;
			return 0;
		}
		parent = BPF_CORE_READ(dentry, d_parent);
		if (parent == dentry) {
			/* The root, or a disconnected entry, which was opened by handle. */
			if (BPF_CORE_READ(inode, i_sb, s_root) != dentry)
				climb->verdict = UNPLACED;
			return 0;
		}
		dentry = parent;
	}
	climb->ended = 0;
	climb->at = (__u64)dentry;
	return 0;
}

static __noinline int below_a_root(struct dentry *dentry)
{
	struct climb way = { .at = (__u64)dentry, .verdict = OUTSIDE };
	int turn;

	if (!dentry)
		return UNPLACED;
	for (turn = 0; turn < MAX_DEPTH / STEPS; turn++) {
		climb(&way);
		if (way.ended)
			return way.verdict;
	}
	return UNPLACED;
}

/* Any name of an inode, for an access without an open file that shows which name was used. */
static __always_inline struct dentry *any_name(struct inode *inode)
{
	struct hlist_node *node = BPF_CORE_READ(inode, i_dentry.first);

	if (!node)
		return 0;
	return (void *)node - bpf_core_field_offset(struct dentry, d_u.d_alias);
}

/* Whether this verdict admits an access; if it is undecided, the access is counted. */
static __always_inline int admits(__u8 verdict)
{
	struct stats *s;

	if (verdict == UNPLACED) {
		s = my_stats();
		if (s)
			COUNT(s->unplaced, 1);
	}
	return verdict == BELOW;
}

/* How long a verdict is kept: a directory above the file may have been renamed. */
#define VERDICT_NS 1000000000ULL

/* A verdict is one on the name by which the file was opened, where that name was. */
static __always_inline int wanted_file(struct file *file, struct inode *inode, struct file_key *key)
{
	struct dentry *dentry = file ? BPF_CORE_READ(file, f_path.dentry) : any_name(inode);
	struct placed placed = { .dentry = (__u64)dentry, .at_ns = bpf_ktime_get_ns() }, *known;

	if (dentry)
		placed.parent = (__u64)BPF_CORE_READ(dentry, d_parent);
	known = bpf_map_lookup_elem(&verdicts, key);
	if (known && placed.at_ns - known->at_ns < VERDICT_NS) {
		int same = known->dentry == placed.dentry;

		if (same && known->parent == placed.parent)
			return admits(known->verdict);
		/* Any name may be another one than that by which it was opened. */
		if (!file && !same && known->verdict == BELOW)
			return admits(BELOW);
	}
	placed.verdict = below_a_root(dentry);
	/* UNPLACED is not kept, because the place may become known later. */
	if (placed.verdict != UNPLACED)
		bpf_map_update_elem(&verdicts, key, &placed, BPF_ANY);
	return admits(placed.verdict);
}

static __always_inline void name_of(struct task_struct *task, char comm[16])
{
	/* A kernel thread that works for a process's io_uring counts under the process's name. */
	if (task->flags & PF_IO_WORKER)
		BPF_CORE_READ_STR_INTO((char(*)[16])comm, task, group_leader, comm);
	else
		bpf_get_current_comm(comm, 16);
}

/* Whether the task passes the filters by process, user, cgroup and name. */
static __always_inline int wanted_task(struct task_struct *task)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (pid == config.self_pid)
		return 0;
	if (config.by_pid && !bpf_map_lookup_elem(&processes, &pid))
		return 0;
	if (config.by_uid && (__u32)bpf_get_current_uid_gid() != config.uid)
		return 0;
	if (config.by_cgroup && bpf_current_task_under_cgroup(&cgroup, 0) != 1)
		return 0;
	if (config.by_comm) {
		char comm[16] = {};
		int i;

		name_of(task, comm);
		for (i = 0; i < 16; i++) {
			if (comm[i] != config.comm[i])
				return 0;
			if (!comm[i])
				break;
		}
	}
	return 1;
}

/* Whether it is on a watched file system. What is done for every file of the machine asks this first. */
static __always_inline int is_watched(struct inode *inode)
{
	__u32 device = BPF_CORE_READ(inode, i_sb, s_dev);

	return !!bpf_map_lookup_elem(&devices, &device);
}

static __always_inline struct file *file_of(__u32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file = 0;
	struct fdtable *table;

	if (!task->files)
		return 0;
	table = task->files->fdt;
	if (!table || fd >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	return file;
}

/* Whether `fd` is a file on a watched file system whose accesses are seen by the call alone: direct I/O is not. */
static __noinline int watched_fd(__u32 fd)
{
	struct file *file = file_of(fd);
	struct inode *inode = 0;

	if (file && !(config.direct_seen && BPF_CORE_READ(file, f_flags) & config.o_direct))
		inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return done();
	return done() + is_watched(inode);
}

#endif
