#!/bin/sh
# Runs train.py as two workers of one thread each: most operations are too small to gain from a second thread.
# The allocator keeps large buffers, as page faults would cost more than the arithmetic.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1 MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="${MASTER_PORT:-29517}" OMP_NUM_THREADS=1
here=$(dirname "$0")
RANK=1 python "$here/train.py" "$@" &
RANK=0 python "$here/train.py" "$@"
wait
