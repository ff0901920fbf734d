// Declarations that the files of the shim share: the isolate, the context, words of the io memory.
#pragma once
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "shim.h"
#include "v8.h"

namespace nigh {

// Words of the io memory that C++ uses. A test compares them with src/io/mod.rs.
constexpr uint32_t kStateWord = 0;
constexpr uint32_t kHeapHitWord = 2;
constexpr uint32_t kKeyLengthWord = 5;
constexpr uint32_t kPlaceWord = 7;
constexpr uint32_t kKeyAt = 4096;
constexpr uint32_t kKeyBytesMax = 65535;
// A context's memory for numbers that are keys (prelude/02_find.js): 4,096 entries of 32 bytes,
// which a core's own cache holds, and a line for the moment.
constexpr size_t kNumbersBytes = (128 << 10) + 64;
// Word of the arena's header: seed of the hash (docs/formats/arena.md).
constexpr uint32_t kSeedWord = 12;
// log2 of the windows that an arena has (prelude/01_layout.js).
constexpr int kWindowsShift = 4;

// V8 keeps typed arrays up to this size in its heap, whose limit bounds their number. When user
// code asks for the buffer of one, V8 ends the process if the allocator refuses. So it never
// refuses these.
constexpr size_t kInHeapBytes = 64;

// Zeroed memory up to a limit; beyond it JavaScript gets a RangeError.
class Allocator final : public v8::ArrayBuffer::Allocator {
 public:
  void* Allocate(size_t length) override { return Take(length, true); }
  void* AllocateUninitialized(size_t length) override { return Take(length, false); }
  void Free(void* data, size_t length) override {
    free(data);
    used_.fetch_sub(length, std::memory_order_relaxed);
  }
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  void set_limit(size_t limit) { limit_.store(limit, std::memory_order_relaxed); }

 private:
  void* Take(size_t length, bool zero) {
    size_t before = used_.fetch_add(length, std::memory_order_relaxed);
    size_t limit = limit_.load(std::memory_order_relaxed);
    void* data = nullptr;
    if (length <= kInHeapBytes || (length <= limit && before <= limit - length)) {
      data = zero ? calloc(length ? length : 1, 1) : malloc(length ? length : 1);
    }
    if (data == nullptr) used_.fetch_sub(length, std::memory_order_relaxed);
    return data;
  }
  std::atomic<size_t> used_{0};
  std::atomic<size_t> limit_{SIZE_MAX};
};

// Stops of the JavaScript that runs in an isolate. They wait while V8 begins a module (shim.cc).
class Stops {
 public:
  // Any thread.
  void Stop(v8::Isolate* isolate) {
    std::lock_guard<std::mutex> locked(mutex_);
    if (held_) {
      waits_ = true;
    } else {
      isolate->TerminateExecution();
    }
  }
  void Hold() {
    std::lock_guard<std::mutex> locked(mutex_);
    held_ = true;
  }
  // Lets a stop that waits happen. Does nothing if none are held.
  void Release(v8::Isolate* isolate) {
    std::lock_guard<std::mutex> locked(mutex_);
    held_ = false;
    if (waits_) isolate->TerminateExecution();
    waits_ = false;
  }

 private:
  std::mutex mutex_;
  bool held_ = false;
  bool waits_ = false;
};

struct Snapshot {
  v8::StartupData blob;
  size_t attach_index;
};

// Addresses of the callbacks, for V8's serializer: zero-terminated.
const intptr_t* ExternalReferences();
// An object with all callbacks: `native` of the prelude.
v8::Local<v8::Object> NativeObject(v8::Local<v8::Context> context);
// xxHash32, as the arena's index wants it.
uint32_t HashKey(const uint8_t* data, size_t length, uint32_t seed);
// V8 calls this when a module looks at `import.meta` for the first time.
void OnImportMeta(v8::Local<v8::Context> context, v8::Local<v8::Module> module,
                  v8::Local<v8::Object> meta);
// Copies any value as text; never throws.
void Copy(v8::Isolate* isolate, v8::Local<v8::Value> value, std::string* out);
// Runs V8's foreground tasks, at most `max`.
void Pump(v8::Isolate* isolate, uint32_t max);
// The offset of the length in a microtask queue, or 0 if it can't be found.
size_t QueueLengthOffset(v8::Isolate* isolate);
// Unix ms that Date.now() returns on this thread, unless 0.
extern thread_local double frozen_now_ms;

}  // namespace nigh

// A scope that stays open, with one handle in it. So an entry into V8 finds its block of handles
// allocated.
struct Handles {
  explicit Handles(v8::Isolate* isolate) : scope(isolate) { v8::Integer::New(isolate, 0); }
  v8::HandleScope scope;
};

// A context from the snapshot, without a tenant yet.
struct BareContext {
  std::unique_ptr<v8::MicrotaskQueue> microtasks;  // outlives the context
  v8::Global<v8::Context> context;
};

struct NighIsolate {
  v8::Isolate* isolate;
  std::unique_ptr<Handles> handles;  // freed before the isolate
  std::shared_ptr<nigh::Allocator> allocator;
  NighHost host;
  void* user;
  uint8_t* io;
  size_t io_length;
  size_t heap_bytes;
  size_t attach_index;
  size_t queue_length_at;  // in a microtask queue; 0: unknown
  NighContext* current;
  bool resident;  // stays current on its thread
  nigh::Stops stops;
  // The running call has been given up: its arenas may change under it, since no pin holds them.
  std::atomic<bool> lost{false};
  // Dropped contexts that the collector has not taken yet: V8 keeps a pointer to the microtask
  // queue of each.
  std::set<NighContext*> dying;
  // Dropped contexts that it has taken, to be deleted. A collection must not delete them itself,
  // and V8's foreground tasks run only when the thread has time.
  std::vector<NighContext*> dead;
  // Contexts made ahead, since making one takes longer than most calls.
  std::vector<BareContext> bare;
  std::string message;
  std::string stack;

  std::atomic<int32_t>* word(uint32_t index) {
    return reinterpret_cast<std::atomic<int32_t>*>(io + 4 * index);
  }
};

struct Free {
  void operator()(void* memory) const { free(memory); }
};

struct NighContext {
  NighIsolate* owner;
  std::vector<NighArena> arenas;  // by partition
  uint32_t seed;
  std::unique_ptr<v8::MicrotaskQueue> microtasks;
  std::unique_ptr<void, Free> numbers;  // zeroed; V8 has let go of it when this struct is deleted
  v8::Global<v8::Context> context;
  v8::Global<v8::Function> dispatch;
  v8::Global<v8::Function> install;
  v8::Global<v8::Function> remove;
  v8::Global<v8::Function> check_await;
};

namespace nigh {

inline NighIsolate* Owner(v8::Isolate* isolate) {
  return static_cast<NighIsolate*>(isolate->GetData(0));
}

// Makes the isolate current for a while, unless it is current already.
class Entered {
 public:
  explicit Entered(NighIsolate* owner)
      : isolate_(v8::Isolate::TryGetCurrent() == owner->isolate ? nullptr : owner->isolate) {
    if (isolate_ != nullptr) isolate_->Enter();
  }
  ~Entered() {
    if (isolate_ != nullptr) isolate_->Exit();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  v8::Isolate* isolate_;
};

}  // namespace nigh
