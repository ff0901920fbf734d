// The C interface between Rust and V8: coarse calls with plain data. src/ffi.rs mirrors it.
//
// 1. At the first start, Rust compares the sizes of the structs on both sides.
// 2. No exception and no panic crosses: V8 and the shim are built without exceptions, and Rust's
//    callbacks catch panics.
// 3. An isolate and its contexts belong to the thread that made the isolate. Other threads may call
//    only the functions that say "any thread".
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" {

struct NighSlice {
  const uint8_t* data;
  size_t length;
};

// An error in compiling or evaluating a module. The slices live until the isolate's next call.
struct NighFault {
  int32_t kind;  // NighFaultKind
  int32_t line;  // from 1; 0: unknown
  int32_t column;
  int32_t reserved;
  NighSlice message;
  NighSlice stack;
};

enum NighFaultKind : int32_t {
  kNighOk = 0,
  kNighException = 1,   // compile error or thrown at top level
  kNighImport = 2,      // message: the name of the import
  kNighAsync = 3,       // top-level await that did not finish
  kNighTerminated = 4,  // time or heap limit
};

// Callbacks into Rust, on the isolate's thread. `user` is NighIsolateParams::user.
struct NighHost {
  void (*commit)(void* user);
  // Writes the found keys into the io memory's part for scans; returns the next cursor.
  double (*scan)(void* user, uint32_t prefix, uint32_t prefix_length, double cursor,
                 uint32_t count);
  void (*log)(void* user, int32_t level, const uint8_t* text, size_t length);
  // Call k has ended while the watchdog decides about it. False if a termination is on its way.
  bool (*late)(void* user, int32_t k);
  // V8 can't go on. `user` is null on a thread without an isolate. The process ends if this
  // returns.
  void (*fatal)(void* user, const char* where, const char* message);
};

struct NighIsolateParams {
  const void* snapshot;  // from nigh_snapshot_make; must outlive the isolate
  uint8_t* io;           // the io memory, see src/io/mod.rs
  size_t io_length;
  void* user;
  NighHost host;
  size_t heap_bytes;
  size_t young_bytes;
  size_t array_buffer_bytes;
  size_t stack_bytes;
};

// The arena of one partition.
struct NighArena {
  const uint8_t* base;
  size_t length;
  bool foreign;  // another thread writes it
};

struct NighHeap {
  size_t used_bytes;
  size_t array_buffer_bytes;
  size_t dropped_contexts;  // that still take memory
};

struct NighIsolate;
struct NighContext;

enum NighOutcome : int32_t { kNighDone = 0, kNighStopped = 1, kNighBroken = 2 };

// Sizes of the structs above, for src/ffi.rs to compare.
void nigh_sizes(size_t out[5]);
const char* nigh_v8_version();
// Once per process, before all that follows. `flags` as for V8's command line.
void nigh_start(int32_t worker_threads, const char* flags);
// Evaluates the prelude (one script) and returns a startup snapshot, or null with `fault` set.
const void* nigh_snapshot_make(NighSlice prelude, NighFault* fault);

NighIsolate* nigh_isolate_new(const NighIsolateParams* params);
void nigh_isolate_free(NighIsolate* isolate);
void nigh_isolate_limits(NighIsolate* isolate, size_t heap_bytes, size_t array_buffer_bytes,
                         size_t stack_bytes);
void nigh_isolate_heap(const NighIsolate* isolate, NighHeap* out);
// Begins a collection; V8's tasks do the rest. `dropped_now`: collects at once if there are dropped
// contexts.
void nigh_isolate_collect(NighIsolate* isolate, bool dropped_now);
// Runs V8's foreground tasks, at most `max`.
void nigh_isolate_pump(NighIsolate* isolate, uint32_t max);
// Makes contexts ahead until `count` are ready for nigh_context_new; none while the heap is half
// full.
void nigh_isolate_prepare(NighIsolate* isolate, size_t count);
// Any thread: stops the JavaScript that runs in the isolate now (or next). While V8 begins a
// module, this waits for the module's own code.
void nigh_terminate(NighIsolate* isolate);
// Any thread: gives the running call up. Its callbacks read no arena from then on.
void nigh_isolate_lose(NighIsolate* isolate);
// Any thread: sets the nice value of the thread with this number (gettid).
void nigh_thread_lower(int32_t thread, int32_t nice);
// Takes back a termination. Collects, and sets the heap limit again, if the heap came near it.
void nigh_isolate_recover(NighIsolate* isolate);
// Collects, if dropped contexts may fill half of the heap.
void nigh_isolate_make_room(NighIsolate* isolate);

// A context whose prelude reads these arenas, one for each partition, all with the same seed. Null
// if V8 can't make one.
NighContext* nigh_context_new(NighIsolate* isolate, const NighArena* arenas, size_t count);
void nigh_context_free(NighContext* context);
// Compiles and evaluates a module, and numbers its exported functions from `first_id` on. The
// prelude writes the list of these functions into the io memory.
int32_t nigh_module_install(NighContext* context, NighSlice name, NighSlice source,
                            uint32_t first_id, NighFault* fault);
bool nigh_module_remove(NighContext* context, uint32_t first_id, uint32_t count);
// Runs the calls of the request in the io memory.
int32_t nigh_run(NighContext* context, double now_ms);

// Any thread: bounds the freed memory that the process's allocator keeps; tells the bytes that it
// keeps; gives them back. Tells how often a page of the process had to be made resident.
void nigh_allocator_settle();
size_t nigh_allocator_free_bytes();
void nigh_allocator_trim();
uint64_t nigh_page_faults();

// Any thread: from now on a signal that ends the process by its own fault calls `tell` first, in
// the signal handler.
void nigh_on_crash(void (*tell)());
// Any thread: writes to stderr; a signal handler may call it.
void nigh_write_error(NighSlice text);
// Any thread: the CPU clock of the calling thread, for nigh_clock_ns.
int32_t nigh_thread_clock();
// Any thread: the time of a clock; 0 if its thread has ended.
uint64_t nigh_clock_ns(int32_t clock);
}
