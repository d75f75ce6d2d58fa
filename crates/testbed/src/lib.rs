//! Test support: real file systems on loop devices, fragmented files, and the kernel's counters
//! while they are used. Everything cleans up after itself when dropped, also when a test fails,
//! and when a signal ends the process.
//!
//! | module | its job |
//! |---|---|
//! | [`image`] | a file system in a sparse file on a loop device |
//! | [`loop_device`] | a file as a block device |
//! | [`file_system`] | how each kind is made, mounted and checked |
//! | [`guest`] | a User Mode Linux guest, for file systems that the host's kernel lacks |
//! | [`older`] | a kernel that lacks a system call |
//! | [`served`] | a drive of the lab that `fragmend lab serve` serves |
//! | [`thin`] | a disk with less space than its size |
//! | [`mount`] | further mounts |
//! | [`holders`] | unmounting with a limit, and what keeps a mount in use |
//! | [`overlay`] | an overlay over directories of an image |
//! | [`fragment`] | files that are truly fragmented, as the papers make them |
//! | [`aging`] | a file system that is full of small files, some of which are removed |
//! | [`database`] | a real SQLite database that grows on an aged file system, and its queries |
//! | [`fileserver`] | many threads that create, append to, read and delete files |
//! | [`sqlite`] | a session of the sqlite3 program |
//! | [`steps`] | where a test stops an `apply` |
//! | [`concurrency`] | programs that use files while these are moved, and what they observe |
//! | [`measure`] | device counters and time around a unit of work, from a cold cache |
//! | [`usage`] | memory and processor time of a process, and its state |
//! | [`replay`] | fixed lists of requests, direct or buffered |
//! | [`noted`] | a trace that the reader itself writes |
//! | [`columns`] | a trace as any Parquet reader sees it |
//! | [`browser`] | a headless Chromium, driven as its developer tools do |
//! | [`reader`] | a reader beside the work, with its latencies |
//! | [`fio`] | fio, typed |
//! | [`packages`] | what is packaged, and a machine with a systemd of its own to install it on |
//! | [`tools`] | fragmend itself, filefrag and sha256sum as functions |
//! | [`pipe`] | pages of a file that are on their way through a pipe |
//! | [`terminal`] | a terminal emulator, and what it shows |
//! | [`process`] | child processes that are never left behind |
//! | [`cleanup`] | what a signal undoes |
//! | [`random`] | one seed, one sequence |
//! | [`scratch`] | temporary directories that `scripts/tidy` finds |
//! | [`bench`] | the comparison tables |
//! | [`demo`] | the whole pipeline on a database, step by step |

pub mod aging;
pub mod bench;
pub mod browser;
pub mod cleanup;
pub mod columns;
pub mod concurrency;
pub mod database;
pub mod demo;
pub mod file_system;
pub mod fileserver;
pub mod fio;
pub mod fragment;
pub mod guest;
pub mod holders;
pub mod image;
pub mod loop_device;
pub mod measure;
pub mod mount;
pub mod noted;
pub mod older;
pub mod overlay;
pub mod packages;
pub mod pipe;
pub mod process;
pub mod random;
pub mod reader;
pub mod replay;
pub mod scratch;
pub mod served;
pub mod sqlite;
pub mod steps;
pub mod terminal;
pub mod thin;
pub mod tools;
pub mod usage;
