// Makes, bounds, recovers and frees isolates and contexts. On the isolate's thread, but for the
// functions that shim.h gives to any thread.
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "internal.h"

namespace {

using v8::ArrayBuffer;
using v8::BackingStore;
using v8::Context;
using v8::Function;
using v8::HandleScope;
using v8::Isolate;
using v8::Local;
using v8::MaybeLocal;
using v8::Object;
using v8::String;
using v8::Value;

// Heap that a call may use beyond the limit while it is being stopped. V8 asks once for a call that
// stops, and gives up if one allocation exceeds the grant: with 32 MiB, `{...text}` did. V8 takes no
// more than it needs: with 128 MiB, eight ways to fill the heap had the same peaks.
constexpr size_t kHeapSlackBytes = size_t{1} << 30;
// The place of that fault: src/isolate/bridge.rs has the same.
constexpr char kSlackUsedUp[] = "heap slack used up";
// Dropped contexts that begin a collection: they take some 16 MB, and each costs time in every
// young-generation collection.
constexpr size_t kDroppedContexts = 64;
// Stack kept free below JavaScript for callbacks into Rust.
constexpr size_t kStackReserveBytes = 256 << 10;

// --- callbacks of V8 ---

void (*fatal)(void* user, const char* where, const char* message) = nullptr;

void OnFatal(const char* where, const char* message) {
  Isolate* isolate = Isolate::TryGetCurrent();
  void* user = isolate == nullptr || isolate->GetData(0) == nullptr ? nullptr : nigh::Owner(isolate)->user;
  if (fatal != nullptr) fatal(user, where, message);
  abort();
}

// V8 asks before it gives up. If user code runs, this stops the call, and grants slack to unwind
// in. The stop hits at the next entry into a function or turn of a loop, which the call waits for
// (src/stop/agreement.rs). Between calls, this grants the slack, and the end of the batch collects.
//
// A call in a step of V8 that never ends (an iteration without JavaScript) uses up the slack too.
// There is no more for it: the isolate is given up, so that the call doesn't take all memory of the
// machine.
size_t OnNearHeapLimit(void* data, size_t current, size_t initial) {
  NighIsolate* owner = static_cast<NighIsolate*>(data);
  if (current < owner->heap_bytes) return owner->heap_bytes;  // the limit was raised meanwhile
  // This runs on the call's own thread, so its state cannot change meanwhile.
  int32_t call = owner->word(nigh::kStateWord)->load();
  std::atomic<int32_t>* hit = owner->word(nigh::kHeapHitWord);
  if (call != 0 && hit->load(std::memory_order_relaxed) == call) {
    OnFatal(kSlackUsedUp, "a call that was told to stop took more heap");
  }
  hit->store(call != 0 ? call : -1, std::memory_order_relaxed);
  if (call != 0) owner->stops.Stop(owner->isolate);
  return current + kHeapSlackBytes;
}

void OnOutOfMemory(const char* where, bool is_heap) {
  OnFatal(where, is_heap ? "JavaScript heap out of memory" : "out of memory");
}

void SetStack(Isolate* isolate, size_t stack_bytes) {
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
  }
  // Not the address of a variable: AddressSanitizer puts variables on the heap.
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  uintptr_t floor = reinterpret_cast<uintptr_t>(low) + kStackReserveBytes;
  uintptr_t limit = here - stack_bytes;
  isolate->SetStackLimit(low != nullptr && limit < floor ? floor : limit);
}

Local<ArrayBuffer> Over(Isolate* isolate, const uint8_t* base, size_t length) {
  std::unique_ptr<BackingStore> store = ArrayBuffer::NewBackingStore(
      const_cast<uint8_t*>(base), length, BackingStore::EmptyDeleter, nullptr);
  return ArrayBuffer::New(isolate, std::move(store));
}

// The word of a queue that is 0 while no microtask waits. If its place is unknown, a word that is
// never 0, so that each call asks V8.
const uint8_t* QueueLength(const NighIsolate* owner, const v8::MicrotaskQueue* queue) {
  static const int32_t unknown = 1;
  if (owner->queue_length_at == 0) return reinterpret_cast<const uint8_t*>(&unknown);
  return reinterpret_cast<const uint8_t*>(queue) + owner->queue_length_at;
}

Local<Function> Member(Local<Context> context, Local<Object> object, const char* name) {
  Local<String> key = String::NewFromUtf8(context->GetIsolate(), name).ToLocalChecked();
  return object->Get(context, key).ToLocalChecked().As<Function>();
}

}  // namespace

namespace nigh {

// V8 doesn't tell an embedder whether microtasks wait, and to ask by a callback costs as much as a
// whole small call. So this looks for the word, once per isolate: a queue's fields begin behind the
// pointer to its methods, and the first one counts the microtasks. A V8 in which it doesn't keeps
// it elsewhere.
size_t QueueLengthOffset(Isolate* isolate) {
  constexpr size_t kAt = sizeof(void*);
  HandleScope handles(isolate);
  std::unique_ptr<v8::MicrotaskQueue> queue =
      v8::MicrotaskQueue::New(isolate, v8::MicrotasksPolicy::kExplicit);
  auto length = [&queue] {
    intptr_t value;
    memcpy(&value, reinterpret_cast<const uint8_t*>(queue.get()) + kAt, sizeof(value));
    return value;
  };
  for (intptr_t waiting = 0; waiting < 3; waiting++) {
    if (length() != waiting) return 0;
    queue->EnqueueMicrotask(isolate, [](void*) {}, nullptr);
  }
  queue->PerformCheckpoint(isolate);
  return length() == 0 ? kAt : 0;
}

}  // namespace nigh

extern "C" {

void nigh_sizes(size_t out[5]) {
  out[0] = sizeof(NighSlice);
  out[1] = sizeof(NighFault);
  out[2] = sizeof(NighIsolateParams);
  out[3] = sizeof(NighHeap);
  out[4] = sizeof(NighArena);
}

NighIsolate* nigh_isolate_new(const NighIsolateParams* params) {
  nigh::Snapshot* snapshot = static_cast<nigh::Snapshot*>(const_cast<void*>(params->snapshot));
  NighIsolate* owner = new NighIsolate();
  owner->allocator = std::make_shared<nigh::Allocator>();
  owner->allocator->set_limit(params->array_buffer_bytes);
  owner->host = params->host;
  owner->user = params->user;
  owner->io = params->io;
  owner->io_length = params->io_length;
  owner->heap_bytes = params->heap_bytes;
  owner->attach_index = snapshot->attach_index;
  fatal = params->host.fatal;

  Isolate::CreateParams create;
  create.snapshot_blob = &snapshot->blob;
  create.external_references = nigh::ExternalReferences();
  create.array_buffer_allocator_shared = owner->allocator;
  create.allow_atomics_wait = false;
  create.constraints.set_max_old_generation_size_in_bytes(params->heap_bytes);
  create.constraints.set_max_young_generation_size_in_bytes(params->young_bytes);
  create.constraints.set_initial_young_generation_size_in_bytes(params->young_bytes);
  create.fatal_error_callback = OnFatal;
  create.oom_error_callback = OnOutOfMemory;
  Isolate* isolate = Isolate::Allocate();
  isolate->SetData(0, owner);
  owner->isolate = isolate;
  Isolate::Initialize(isolate, create);
  isolate->SetMicrotasksPolicy(v8::MicrotasksPolicy::kExplicit);
  isolate->AddNearHeapLimitCallback(OnNearHeapLimit, owner);
  isolate->SetCaptureStackTraceForUncaughtExceptions(false);
  // Without a listener, V8 prints what nobody catches to stdout: a job whose promise throws, too.
  isolate->AddMessageListener([](Local<v8::Message>, Local<Value>) {});
  isolate->SetHostInitializeImportMetaObjectCallback(nigh::OnImportMeta);
  SetStack(isolate, params->stack_bytes);
  // The thread's first isolate stays current: so no batch has to enter it.
  owner->resident = Isolate::TryGetCurrent() == nullptr;
  if (owner->resident) isolate->Enter();
  nigh::Entered entered(owner);
  owner->handles = std::make_unique<Handles>(isolate);
  owner->queue_length_at = nigh::QueueLengthOffset(isolate);
  return owner;
}

// The context is empty if V8 can't make one.
static BareContext MakeBare(NighIsolate* owner) {
  Isolate* isolate = owner->isolate;
  BareContext bare;
  bare.microtasks = v8::MicrotaskQueue::New(isolate, v8::MicrotasksPolicy::kExplicit);
  Local<Context> context =
      Context::New(isolate, nullptr, MaybeLocal<v8::ObjectTemplate>(), MaybeLocal<Value>(),
                   v8::DeserializeInternalFieldsCallback(), bare.microtasks.get());
  if (context.IsEmpty()) return bare;
  context->AllowCodeGenerationFromStrings(false);
  bare.context.Reset(isolate, context);
  return bare;
}

// Makes V8 begin to mark, on other threads and in steps between calls, by the pretence that much
// memory was taken outside of its heap. A notice of memory pressure would begin a collection too.
// But that one drops the shapes of objects of which none is alive now, and with them the optimized
// code that makes such objects: the next calls would be slow for 20 ms. Below a heap limit of 128
// MiB, V8 treats this pretence like such a notice, and collects at once.
static void BeginCollection(Isolate* isolate) {
  constexpr int64_t kBeyondSoftLimit = (64 << 20) + 1;
  isolate->AdjustAmountOfExternalAllocatedMemory(kBeyondSoftLimit);
  isolate->AdjustAmountOfExternalAllocatedMemory(-kBeyondSoftLimit);
}

// Deletes the structs of contexts that the collector has taken.
static void Bury(NighIsolate* owner) {
  for (NighContext* context : owner->dead) delete context;
  owner->dead.clear();
}

void nigh_isolate_free(NighIsolate* owner) {
  owner->handles.reset();
  Bury(owner);
  for (NighContext* context : owner->dying) delete context;
  owner->bare.clear();
  if (owner->resident) owner->isolate->Exit();
  owner->isolate->Dispose();
  delete owner;
}

void nigh_isolate_limits(NighIsolate* owner, size_t heap_bytes, size_t array_buffer_bytes,
                         size_t stack_bytes) {
  nigh::Entered entered(owner);
  owner->allocator->set_limit(array_buffer_bytes);
  SetStack(owner->isolate, stack_bytes);
  if (heap_bytes == owner->heap_bytes) return;
  owner->heap_bytes = heap_bytes;  // OnNearHeapLimit grants a higher limit when V8 asks
  owner->isolate->RemoveNearHeapLimitCallback(OnNearHeapLimit, heap_bytes);
  owner->isolate->AddNearHeapLimitCallback(OnNearHeapLimit, owner);
}

void nigh_isolate_heap(const NighIsolate* owner, NighHeap* out) {
  v8::HeapStatistics statistics;
  owner->isolate->GetHeapStatistics(&statistics);
  out->used_bytes = statistics.used_heap_size();
  out->array_buffer_bytes = owner->allocator->used();
  out->dropped_contexts = owner->dying.size() + owner->dead.size();
}

void nigh_isolate_pump(NighIsolate* owner, uint32_t max) {
  nigh::Entered entered(owner);
  HandleScope handles(owner->isolate);
  nigh::Pump(owner->isolate, max);
  Bury(owner);
}

void nigh_isolate_collect(NighIsolate* owner, bool dropped_now) {
  nigh::Entered entered(owner);
  if (!dropped_now || owner->dying.empty()) return BeginCollection(owner->isolate);
  HandleScope handles(owner->isolate);
  owner->isolate->LowMemoryNotification();
}

void nigh_isolate_prepare(NighIsolate* owner, size_t count) {
  nigh::Entered entered(owner);
  HandleScope handles(owner->isolate);
  v8::HeapStatistics statistics;
  owner->isolate->GetHeapStatistics(&statistics);
  // Near the limit, V8 would stop the next call.
  if (statistics.used_heap_size() > owner->heap_bytes / 2) return;
  while (owner->bare.size() < count) {
    BareContext bare = MakeBare(owner);
    if (bare.context.IsEmpty()) return;
    owner->bare.push_back(std::move(bare));
  }
}

void nigh_terminate(NighIsolate* owner) { owner->stops.Stop(owner->isolate); }

void nigh_isolate_recover(NighIsolate* owner) {
  Isolate* isolate = owner->isolate;
  isolate->CancelTerminateExecution();
  if (owner->word(nigh::kHeapHitWord)->exchange(0) == 0) return;
  nigh::Entered entered(owner);
  HandleScope handles(isolate);
  isolate->LowMemoryNotification();
  isolate->RemoveNearHeapLimitCallback(OnNearHeapLimit, owner->heap_bytes);
  isolate->AddNearHeapLimitCallback(OnNearHeapLimit, owner);
}

void nigh_isolate_make_room(NighIsolate* owner) {
  v8::HeapStatistics statistics;
  owner->isolate->GetHeapStatistics(&statistics);
  if (owner->dying.empty() || statistics.used_heap_size() <= owner->heap_bytes / 2) return;
  nigh::Entered entered(owner);
  HandleScope handles(owner->isolate);
  owner->isolate->LowMemoryNotification();
}

NighContext* nigh_context_new(NighIsolate* owner, const NighArena* arenas, size_t count) {
  Isolate* isolate = owner->isolate;
  nigh::Entered entered(owner);
  HandleScope handles(isolate);
  auto made = std::make_unique<NighContext>();
  made->owner = owner;
  made->arenas.assign(arenas, arenas + count);
  memcpy(&made->seed, arenas[0].base + 4 * nigh::kSeedWord, sizeof(made->seed));
  if (owner->bare.empty()) owner->bare.push_back(MakeBare(owner));
  BareContext bare = std::move(owner->bare.back());
  owner->bare.pop_back();
  if (bare.context.IsEmpty()) return nullptr;
  made->microtasks = std::move(bare.microtasks);
  Local<Context> context = bare.context.Get(isolate);
  Context::Scope inside(context);
  v8::TryCatch caught(isolate);
  Local<Function> attach;
  if (!context->GetDataFromSnapshotOnce<Function>(owner->attach_index).ToLocal(&attach)) {
    return nullptr;
  }
  made->numbers.reset(calloc(1, nigh::kNumbersBytes));  // untouched pages take no memory
  if (made->numbers == nullptr) return nullptr;
  std::vector<Local<Value>> buffers, foreign;
  for (const NighArena& arena : made->arenas) {
    buffers.push_back(Over(isolate, arena.base, arena.length));
    foreign.push_back(v8::Boolean::New(isolate, arena.foreign));
  }
  Local<Value> arguments[] = {
      Over(isolate, owner->io, owner->io_length), v8::Array::New(isolate, buffers.data(), count),
      v8::Array::New(isolate, foreign.data(), count),
      Over(isolate, static_cast<uint8_t*>(made->numbers.get()), nigh::kNumbersBytes),
      Over(isolate, QueueLength(owner, made->microtasks.get()), sizeof(int32_t))};
  Local<Value> parts;
  if (!attach->Call(context, v8::Undefined(isolate), 5, arguments).ToLocal(&parts)) {
    return nullptr;
  }
  made->dispatch.Reset(isolate, Member(context, parts.As<Object>(), "dispatch"));
  made->install.Reset(isolate, Member(context, parts.As<Object>(), "install"));
  made->remove.Reset(isolate, Member(context, parts.As<Object>(), "remove"));
  made->check_await.Reset(isolate, Member(context, parts.As<Object>(), "checkAwait"));
  made->context.Reset(isolate, context);
  return made.release();
}

void nigh_context_free(NighContext* context) {
  NighIsolate* owner = context->owner;
  nigh::Entered entered(owner);
  HandleScope handles(owner->isolate);
  {
    Local<Context> local = context->context.Get(owner->isolate);
    local->DetachGlobal();
  }
  context->dispatch.Reset();
  context->install.Reset();
  context->remove.Reset();
  context->check_await.Reset();
  Bury(owner);
  owner->dying.insert(context);
  context->context.SetWeak(
      context,
      [](const v8::WeakCallbackInfo<NighContext>& info) {
        NighContext* dead = info.GetParameter();
        dead->context.Reset();
        dead->owner->dying.erase(dead);
        dead->owner->dead.push_back(dead);
      },
      v8::WeakCallbackType::kParameter);
  owner->isolate->ContextDisposedNotification(false);
  if (owner->dying.size() % kDroppedContexts == 0) {
    // By itself, V8 would let some 128 MiB of them gather.
    BeginCollection(owner->isolate);
  }
}

void nigh_isolate_lose(NighIsolate* owner) { owner->lost.store(true, std::memory_order_release); }

void nigh_thread_lower(int32_t thread, int32_t nice) {
  // On Linux, the number of a thread names that thread alone.
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread), nice);
}

int32_t nigh_thread_clock() {
  clockid_t clock;
  return pthread_getcpuclockid(pthread_self(), &clock) == 0 ? clock : CLOCK_MONOTONIC;
}

uint64_t nigh_clock_ns(int32_t clock) {
  struct timespec now;
  if (clock_gettime(clock, &now) != 0) return 0;
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}
}
