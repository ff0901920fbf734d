// What glibc's allocator keeps of freed memory, V8's and everybody else's in the process.
#include <malloc.h>

#include "shim.h"

extern "C" {

void nigh_allocator_settle() {
  // The largest that glibc comes to by itself, once blocks of that size were freed: from there on the system gives
  // and takes. Mapping smaller ones too would cost each reply of a megabyte three times what it takes now.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  // What may stay behind the last block in use of each thread's heap, which trimming doesn't reach. By itself glibc
  // comes to 64 MiB.
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

size_t nigh_allocator_free_bytes() {
  struct mallinfo2 info = mallinfo2();
  return info.fordblks;
}

void nigh_allocator_trim() { malloc_trim(0); }
}
