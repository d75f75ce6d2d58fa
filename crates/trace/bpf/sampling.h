/* Which accesses are recorded when recording all of them would cost too much: those in a part of all places. A
 * place is an aligned region of a file; whether it is in the part depends on a hash of inode and region alone, so
 * that a smaller part is within every larger one (SHARDS, FAST'15). docs/trace-format.md defines the hash for
 * other readers, and src/sampling.rs repeats it. */
#ifndef FRAGMEND_SAMPLING_H
#define FRAGMEND_SAMPLING_H

#define ALL_PLACES (1U << 24)

/* User space changes this during the recording. */
struct control {
	__u32 requests_below; /* places whose hash is below are recorded, of ALL_PLACES */
	__u32 misses_below;
	__u32 weight; /* of requests: each stands for as many; 0 while they are not watched */
	__u32 pad;
};

volatile struct control control = { ALL_PLACES, ALL_PLACES, 1, 0 };

static __always_inline __u32 place_hash(__u64 inode, __u64 offset)
{
	__u64 x = inode * 0x9e3779b97f4a7c15ULL + (offset >> config.region_shift);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return (x ^ x >> 31) >> 40;
}

/* Whether this place is in the part. */
static __always_inline int sampled(__u64 inode, __u64 offset, __u32 below)
{
	return below >= ALL_PLACES || place_hash(inode, offset) < below;
}

#endif
