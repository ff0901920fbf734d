// Bounds the freed memory that glibc's allocator keeps, for the whole process. Any thread.
#include <malloc.h>
#include <sys/resource.h>

#include "shim.h"

extern "C" {

void nigh_allocator_settle() {
  // Blocks from here on are mapped, so they go back to the system when they are freed. This is the
  // largest threshold to which glibc rises by itself, once such blocks were freed. With smaller
  // blocks mapped too, a reply of a megabyte would cost three times as much.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  // Free bytes that may stay at the end of each thread's heap, which malloc_trim() doesn't reach.
  // By itself, glibc rises to 64 MiB.
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

size_t nigh_allocator_free_bytes() {
  struct mallinfo2 info = mallinfo2();
  return info.fordblks;
}

void nigh_allocator_trim() { malloc_trim(0); }

uint64_t nigh_page_faults() {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<uint64_t>(usage.ru_minflt);
}
}
