// Copies from global to shared memory that go on while the threads compute (Ampere and later).

// 16 bytes, or 16 zero bytes where there is nothing to copy.
__device__ inline void copy_async(void* to, const void* from, bool there) {
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes));
}

// Close a group of copies; wait until all groups but the last `LEFT` are there.
__device__ inline void close_group() { asm volatile("cp.async.commit_group;"); }

template <int LEFT>
__device__ inline void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
