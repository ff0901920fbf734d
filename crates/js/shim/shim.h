// The C interface between Rust and V8: plain data only, coarse calls. src/ffi.rs mirrors it; both
// sides assert the sizes. No exception crosses: V8 and this file are built without them, and the
// callbacks into Rust catch panics.
//
// Threads: an isolate and its contexts belong to the thread that made them. Only nigh_terminate and
// the two clock functions may be called from another one.
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" {

struct NighSlice {
  const uint8_t* data;
  size_t length;
};

// What went wrong in compiling or evaluating a module. The slices live until the next call of the
// same isolate.
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
  kNighImport = 2,      // message: what it imports
  kNighAsync = 3,       // top-level await that did not finish
  kNighTerminated = 4,  // time or heap limit
};

// Callbacks into Rust. `user` is NighIsolateParams::user.
struct NighHost {
  void (*commit)(void* user);
  // Writes the found keys into the io memory's part for scans; returns the next cursor.
  double (*scan)(void* user, uint32_t prefix, uint32_t prefix_length, double cursor,
                 uint32_t count);
  void (*log)(void* user, int32_t level, const uint8_t* text, size_t length);
  // Call k has ended while the watchdog wants to stop it. False if its termination is on its way.
  bool (*late)(void* user, int32_t k);
  // V8 gives up. `user` is null on a thread without an isolate. The process ends if this returns.
  void (*fatal)(void* user, const char* where, const char* message);
};

struct NighIsolateParams {
  const void* snapshot;  // from nigh_snapshot_make; must outlive the isolate
  uint8_t* io;           // the io memory, see src/io.rs
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
  size_t total_bytes;
  size_t array_buffer_bytes;
  uint64_t heap_limit_hits;
  size_t dropped_contexts;  // that still take memory
};

struct NighIsolate;
struct NighContext;

enum NighOutcome : int32_t { kNighDone = 0, kNighStopped = 1, kNighBroken = 2 };

// Sizes of the structs above, to be compared on the other side.
void nigh_sizes(size_t out[5]);
const char* nigh_v8_version();
// Once per process, before all else; flags as for V8's command line.
void nigh_start(int32_t worker_threads, const char* flags);
// Evaluates the prelude (one script) and returns a startup snapshot, or null with `fault` set.
const void* nigh_snapshot_make(NighSlice prelude, NighFault* fault);

NighIsolate* nigh_isolate_new(const NighIsolateParams* params);
void nigh_isolate_free(NighIsolate* isolate);
void nigh_isolate_limits(NighIsolate* isolate, size_t heap_bytes, size_t array_buffer_bytes,
                         size_t stack_bytes);
void nigh_isolate_heap(const NighIsolate* isolate, NighHeap* out);
// Runs V8's foreground tasks, at most `max` of them.
void nigh_isolate_collect(NighIsolate* isolate);
void nigh_isolate_pump(NighIsolate* isolate, uint32_t max);
// Makes bare contexts ahead, so that `nigh_context_new` finds `count`; none while the heap is half full.
void nigh_isolate_prepare(NighIsolate* isolate, size_t count);
// Any thread: stops the JavaScript that runs in the isolate now (or next).
void nigh_terminate(NighIsolate* isolate);
// Any thread: the call that runs has been given up. Its callbacks read no arena any more.
void nigh_isolate_lose(NighIsolate* isolate);
// Any thread: gives the thread of this number (gettid) less of its core than others have.
void nigh_thread_lower(int32_t thread, int32_t nice);
// Takes back a termination, and what the heap took beyond its limit.
void nigh_isolate_recover(NighIsolate* isolate);
// Collects, if dropped contexts may hold half of the heap.
void nigh_isolate_make_room(NighIsolate* isolate);

// A context whose prelude reads these arenas, by partition, all with one seed of the hash. Null if V8 could
// not make one.
NighContext* nigh_context_new(NighIsolate* isolate, const NighArena* arenas, size_t count);
void nigh_context_free(NighContext* context);
// Compiles and evaluates a module and numbers its exported functions from `first_id` on. The prelude
// writes what it found into the io memory.
int32_t nigh_module_install(NighContext* context, NighSlice name, NighSlice source,
                            uint32_t first_id, NighFault* fault);
bool nigh_module_remove(NighContext* context, uint32_t first_id, uint32_t count);
// Runs the calls of the request that lies in the io memory, as words there say.
int32_t nigh_run(NighContext* context, double now_ms);

// Sets how much freed memory the process's allocator keeps by itself; the freed bytes that it keeps; giving them
// back. Any thread.
void nigh_allocator_settle();
size_t nigh_allocator_free_bytes();
void nigh_allocator_trim();

// CPU clock of the calling thread, for nigh_clock_ns on any thread.
// Has `tell` called when a signal ends the process by its own fault. It must keep the rules of handlers.
void nigh_on_crash(void (*tell)());
// Writes to stderr; may be called in a signal handler.
void nigh_write_error(NighSlice text);
int32_t nigh_thread_clock();
uint64_t nigh_clock_ns(int32_t clock);
}
