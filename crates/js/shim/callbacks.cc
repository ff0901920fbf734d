// The callbacks of the prelude: its `native` object, and the hash of keys. Arguments come from
// trusted JavaScript. They run on the isolate's thread, inside of nigh_run and nigh_module_install.
#include <string.h>

#include <algorithm>

#include "internal.h"

namespace nigh {

static uint32_t Rotate(uint32_t value, int by) { return (value << by) | (value >> (32 - by)); }

uint32_t HashKey(const uint8_t* data, size_t length, uint32_t seed) {
  constexpr uint32_t kP1 = 0x9e3779b1, kP2 = 0x85ebca77, kP3 = 0xc2b2ae3d, kP4 = 0x27d4eb2f,
                     kP5 = 0x165667b1;
  const uint8_t* end = data + length;
  auto word = [](const uint8_t* at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
  };
  uint32_t h = seed + kP5;
  if (length >= 16) {
    uint32_t lanes[4] = {seed + kP1 + kP2, seed + kP2, seed, seed - kP1};
    for (; end - data >= 16; data += 16) {
      for (int i = 0; i < 4; i++) {
        lanes[i] = Rotate(lanes[i] + word(data + 4 * i) * kP2, 13) * kP1;
      }
    }
    h = Rotate(lanes[0], 1) + Rotate(lanes[1], 7) + Rotate(lanes[2], 12) + Rotate(lanes[3], 18);
  }
  h += static_cast<uint32_t>(length);
  for (; end - data >= 4; data += 4) h = Rotate(h + word(data) * kP3, 17) * kP4;
  for (; data < end; data++) h = Rotate(h + *data * kP5, 11) * kP1;
  h = (h ^ (h >> 15)) * kP2;
  h = (h ^ (h >> 13)) * kP3;
  return h ^ (h >> 16);
}

#ifdef NIGH_BENCH
void BenchGet(const v8::FunctionCallbackInfo<v8::Value>& info);
void BenchU32(const v8::FunctionCallbackInfo<v8::Value>& info);
#endif

namespace {

using v8::ArrayBuffer;
using v8::BackingStore;
using v8::Context;
using v8::Function;
using v8::FunctionCallbackInfo;
using v8::Isolate;
using v8::Local;
using v8::MaybeLocal;
using v8::Object;
using v8::Promise;
using v8::String;
using v8::Value;

// A number of the prelude's; 0 if it is no word.
uint32_t Word(const FunctionCallbackInfo<Value>& info, int index) {
  double value = info[index].As<v8::Number>()->Value();
  return value >= 0 && value <= UINT32_MAX ? static_cast<uint32_t>(value) : 0;
}

// A place in the io memory to write to.
struct Room {
  uint8_t* at;
  size_t bytes;
};

// The place that two arguments name by offset and bytes, cut at the end of the io memory.
Room RoomAt(const FunctionCallbackInfo<Value>& info, int index) {
  NighIsolate* owner = Owner(info.GetIsolate());
  size_t offset = std::min<size_t>(Word(info, index), owner->io_length);
  return {owner->io + offset, std::min<size_t>(Word(info, index + 1), owner->io_length - offset)};
}

void Throw(Isolate* isolate, const char* text) {
  Local<String> message = String::NewFromUtf8(isolate, text).ToLocalChecked();
  isolate->ThrowException(v8::Exception::RangeError(message));
}

// The address of a (window, offset / 8) pair of the prelude. Window -1 is the io memory; the others
// are numbered through all arenas.
const uint8_t* Place(NighIsolate* owner, int32_t window, uint32_t eighths) {
  size_t offset = size_t{eighths} * 8;
  if (window < 0) return owner->io + offset;
  const NighArena* arenas = owner->current->arenas.data();
  size_t within = size_t{static_cast<uint32_t>(window)} & ((1 << kWindowsShift) - 1);
  return arenas[window >> kWindowsShift].base + (within << 32) + offset;
}

// Writes the first window of a key's arena into the word kPlaceWord. The hash of the key's {tag}
// chooses the arena, by Redis Cluster's rule; without a tag, the hash of the key does.
void PlaceKey(NighIsolate* owner, const uint8_t* key, size_t length, uint32_t hash) {
  const uint8_t* end = key + length;
  const void* open = memchr(key, '{', length);
  if (open != nullptr) {
    const uint8_t* tag = static_cast<const uint8_t*>(open) + 1;
    const void* close = memchr(tag, '}', static_cast<size_t>(end - tag));
    if (close != nullptr && close != tag) {
      size_t bytes = static_cast<size_t>(static_cast<const uint8_t*>(close) - tag);
      hash = HashKey(tag, bytes, owner->current->seed);
    }
  }
  uint64_t partition = (uint64_t{hash} * owner->current->arenas.size()) >> 32;
  owner->word(kPlaceWord)->store(static_cast<int32_t>(partition << kWindowsShift),
                                 std::memory_order_relaxed);
}

// Whether the call has been given up: it is about to be stopped, and its arenas may hold anything.
bool Lost(NighIsolate* owner) { return owner->lost.load(std::memory_order_acquire); }

bool IsAscii(const uint8_t* data, uint32_t length) {
  uint32_t i = 0;
  for (; i + 8 <= length; i += 8) {
    uint64_t eight;
    memcpy(&eight, data + i, 8);
    if ((eight & 0x8080808080808080ull) != 0) return false;
  }
  for (; i < length; i++) {
    if (data[i] >= 128) return false;
  }
  return true;
}

// A string from UTF-8 bytes; empty if this throws. Those of an arena are read once: they change
// under a call that has been given up, at any time. V8 reads UTF-8 twice, to count its units and to
// write them, and writes past the string's end if they have become more. So it gets a copy.
MaybeLocal<String> MakeText(Isolate* isolate, const uint8_t* data, uint32_t length, bool is_own) {
  constexpr auto kNormal = v8::NewStringType::kNormal;
  if (length > static_cast<uint32_t>(String::kMaxLength)) {
    Throw(isolate, "value too long");
    return MaybeLocal<String>();
  }
  int units = static_cast<int>(length);
  if (IsAscii(data, length)) return String::NewFromOneByte(isolate, data, kNormal, units);
  if (is_own) {
    return String::NewFromUtf8(isolate, reinterpret_cast<const char*>(data), kNormal, units);
  }
  Allocator* allocator = Owner(isolate)->allocator.get();
  char* copy = static_cast<char*>(allocator->AllocateUninitialized(length));
  if (copy == nullptr) {
    Throw(isolate, "no memory for the value's text");
    return MaybeLocal<String>();
  }
  memcpy(copy, data, length);
  MaybeLocal<String> text = String::NewFromUtf8(isolate, copy, kNormal, units);
  allocator->Free(copy, length);
  return text;
}

// text(window, offset / 8, length): a string from UTF-8 bytes; invalid ones become U+FFFD.
void Text(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  if (Lost(owner)) return;
  int32_t window = info[0].As<v8::Int32>()->Value();
  const uint8_t* data = Place(owner, window, Word(info, 1));
  Local<String> text;
  if (MakeText(info.GetIsolate(), data, Word(info, 2), window < 0).ToLocal(&text)) {
    info.GetReturnValue().Set(text);
  }
}

// Writes a string as UTF-8 to `out`. Returns its length, or -1 if `room` is too small. Lone
// surrogates become U+FFFD.
int64_t WriteText(Isolate* isolate, Local<String> text, uint8_t* out, size_t room) {
  size_t units = static_cast<size_t>(text->Length());
  if (units > room) return -1;
  if (!text->IsOneByte()) {
    int wanted = text->Utf8Length(isolate);
    if (wanted < 0 || static_cast<size_t>(wanted) > room) return -1;
    return text->WriteUtf8(isolate, reinterpret_cast<char*>(out), wanted, nullptr,
                           String::NO_NULL_TERMINATION | String::REPLACE_INVALID_UTF8);
  }
  // Latin-1 only: as UTF-8 at most twice as long.
  constexpr int kFlags = String::NO_NULL_TERMINATION | String::HINT_MANY_WRITES_EXPECTED;
  text->WriteOneByte(isolate, out, 0, static_cast<int>(units), kFlags);
  size_t high = 0;
  size_t i = 0;
  for (; i + 8 <= units; i += 8) {
    uint64_t eight;
    memcpy(&eight, out + i, 8);
    eight &= 0x8080808080808080ull;
    if (eight != 0) high += static_cast<size_t>(__builtin_popcountll(eight));
  }
  for (; i < units; i++) high += out[i] >> 7;
  if (units + high > room) return -1;
  if (high == 0) return static_cast<int64_t>(units);
  for (size_t from = units, to = units + high; from > 0;) {  // widen in place from the end
    uint8_t unit = out[--from];
    if (unit < 128) {
      out[--to] = unit;
    } else {
      out[--to] = 0x80 | (unit & 0x3f);
      out[--to] = 0xc0 | (unit >> 6);
    }
  }
  return static_cast<int64_t>(units + high);
}

// utf8(string, io offset, room): writes the string and returns its length in bytes, or -1.
void Utf8(const FunctionCallbackInfo<Value>& info) {
  Isolate* isolate = info.GetIsolate();
  Room out = RoomAt(info, 1);
  int64_t length = WriteText(isolate, info[0].As<String>(), out.at, out.bytes);
  info.GetReturnValue().Set(static_cast<double>(length));
}

// key(string): puts the key's bytes at kKeyAt, zero-padded to 4, and their number into
// kKeyLengthWord: -1 if the key is too long. With several arenas, writes the key's place too.
// Returns the hash. So a find needs one crossing.
void Key(const FunctionCallbackInfo<Value>& info) {
  Isolate* isolate = info.GetIsolate();
  NighIsolate* owner = Owner(isolate);
  uint8_t* out = owner->io + kKeyAt;
  int64_t length = WriteText(isolate, info[0].As<String>(), out, kKeyBytesMax);
  owner->word(kKeyLengthWord)->store(static_cast<int32_t>(length), std::memory_order_relaxed);
  if (length < 0) return info.GetReturnValue().Set(0);
  memset(out + length, 0, 4);
  uint32_t hash = HashKey(out, static_cast<size_t>(length), owner->current->seed);
  if (owner->current->arenas.size() > 1) PlaceKey(owner, out, static_cast<size_t>(length), hash);
  info.GetReturnValue().Set(static_cast<int32_t>(hash));
}

// place(length, hash): writes the place of the key at kKeyAt.
void KeyPlace(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  uint32_t hash = static_cast<uint32_t>(info[1].As<v8::Int32>()->Value());
  PlaceKey(owner, owner->io + kKeyAt, Word(info, 0), hash);
}

// late(k): call k has ended while the watchdog decides about it, or its heap was full. True if the
// call goes on; false if a termination is on its way. It is asked for once more: V8 10.2 forgets
// one that comes while it renders a BigInt for an error's message.
void Late(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  int32_t k = info[0].As<v8::Int32>()->Value();
  bool is_full = owner->word(kHeapHitWord)->load(std::memory_order_relaxed) == k;
  bool goes_on = !is_full && owner->host.late(owner->user, k);
  if (!goes_on) owner->stops.Stop(owner->isolate);
  info.GetReturnValue().Set(goes_on);
}

// copyIn(view or buffer, io offset, room): copies the bytes and returns their number, or -1 if
// `room` is too small.
void CopyIn(const FunctionCallbackInfo<Value>& info) {
  Room out = RoomAt(info, 1);
  size_t length;
  if (info[0]->IsArrayBufferView()) {
    Local<v8::ArrayBufferView> view = info[0].As<v8::ArrayBufferView>();
    length = view->ByteLength();
    if (length <= out.bytes) view->CopyContents(out.at, length);
  } else {
    std::shared_ptr<BackingStore> store = info[0].As<ArrayBuffer>()->GetBackingStore();
    length = store->ByteLength();
    if (length <= out.bytes && length > 0) memcpy(out.at, store->Data(), length);
  }
  info.GetReturnValue().Set(length <= out.bytes ? static_cast<double>(length) : -1.0);
}

// byteLength(view)
void ByteLength(const FunctionCallbackInfo<Value>& info) {
  info.GetReturnValue().Set(
      static_cast<double>(info[0].As<v8::ArrayBufferView>()->ByteLength()));
}

// copyWithin(window, offset / 8, length, io offset): copies a value into the io memory.
void CopyWithin(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  if (Lost(owner)) return;
  int32_t window = info[0].As<v8::Int32>()->Value();
  memmove(owner->io + Word(info, 3), Place(owner, window, Word(info, 1)), Word(info, 2));
}

// A fresh Uint8Array with a copy; empty if the allocator has no room.
MaybeLocal<Value> MakeBytes(Isolate* isolate, const uint8_t* from, size_t length) {
  NighIsolate* owner = Owner(isolate);
  void* data = owner->allocator->AllocateUninitialized(length);
  if (data == nullptr) return MaybeLocal<Value>();
  memcpy(data, from, length);
  std::unique_ptr<BackingStore> store = ArrayBuffer::NewBackingStore(
      data, length,
      [](void* bytes, size_t size, void* allocator) {
        static_cast<Allocator*>(allocator)->Free(bytes, size);
      },
      owner->allocator.get());
  Local<ArrayBuffer> buffer = ArrayBuffer::New(isolate, std::move(store));
  return Local<Value>(v8::Uint8Array::New(buffer, 0, length));
}

// bytes(window, offset / 8, length): a Uint8Array; undefined if the allocator has no room.
void Bytes(const FunctionCallbackInfo<Value>& info) {
  Isolate* isolate = info.GetIsolate();
  NighIsolate* owner = Owner(isolate);
  if (Lost(owner)) return;
  const uint8_t* from = Place(owner, info[0].As<v8::Int32>()->Value(), Word(info, 1));
  Local<Value> made;
  if (MakeBytes(isolate, from, Word(info, 2)).ToLocal(&made)) info.GetReturnValue().Set(made);
}

// list(word of the io memory, count): an array of the arguments that `count` pairs name (see
// prelude/06_dispatch.js); undefined if the allocator has no room for one of bytes.
void List(const FunctionCallbackInfo<Value>& info) {
  constexpr uint32_t kBytes = 2, kKindShift = 30;
  Isolate* isolate = info.GetIsolate();
  NighIsolate* owner = Owner(isolate);
  const std::atomic<int32_t>* pair = owner->word(Word(info, 0));
  std::vector<Local<Value>> made(Word(info, 1));
  for (Local<Value>& element : made) {
    // Making an element leaves handles, at which each collection would look.
    v8::EscapableHandleScope handles(isolate);
    Local<Value> value;
    uint32_t offset = static_cast<uint32_t>(pair[0].load(std::memory_order_relaxed));
    uint32_t packed = static_cast<uint32_t>(pair[1].load(std::memory_order_relaxed));
    uint32_t length = packed & ((1u << kKindShift) - 1);
    pair += 2;
    if (packed >> kKindShift == kBytes) {
      if (!MakeBytes(isolate, owner->io + offset, length).ToLocal(&value)) return;
    } else {
      Local<String> text;
      if (!MakeText(isolate, owner->io + offset, length, true).ToLocal(&text)) return;
      value = text;
    }
    element = handles.Escape(value);
  }
  info.GetReturnValue().Set(v8::Array::New(isolate, made.data(), made.size()));
}

// copyOut(window, offset / 8, view): fills a Uint8Array that only the prelude has seen.
void CopyOut(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  if (Lost(owner)) return;
  Local<v8::Uint8Array> view = info[2].As<v8::Uint8Array>();
  memcpy(view->Buffer()->GetBackingStore()->Data(),
         Place(owner, info[0].As<v8::Int32>()->Value(), Word(info, 1)), view->ByteLength());
}

// settle(value): runs all microtasks. Returns the value; of a promise, its result; throws the
// reason of a rejected one.
void Settle(const FunctionCallbackInfo<Value>& info) {
  Isolate* isolate = info.GetIsolate();
  NighIsolate* owner = Owner(isolate);
  owner->current->microtasks->PerformCheckpoint(isolate);
  if (isolate->IsExecutionTerminating() || !info[0]->IsPromise()) {
    return info.GetReturnValue().Set(info[0]);
  }
  Local<Promise> promise = info[0].As<Promise>();
  if (promise->State() == Promise::kFulfilled) {
    info.GetReturnValue().Set(promise->Result());
  } else if (promise->State() == Promise::kRejected) {
    promise->MarkAsHandled();
    isolate->ThrowException(promise->Result());
  } else {
    Throw(isolate,
          "the function returned a promise that is still pending: nothing in a function can wait "
          "for the world outside");
  }
}

// isPromise(value)
void IsPromise(const FunctionCallbackInfo<Value>& info) {
  info.GetReturnValue().Set(info[0]->IsPromise());
}

void Commit(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  owner->host.commit(owner->user);
}

// scan(prefix io offset, prefix length, cursor, count)
void Scan(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  double cursor = info[2].As<v8::Number>()->Value();
  info.GetReturnValue().Set(owner->host.scan(owner->user, Word(info, 0), Word(info, 1), cursor,
                                             Word(info, 3)));
}

// log(level, io offset, length)
void Log(const FunctionCallbackInfo<Value>& info) {
  NighIsolate* owner = Owner(info.GetIsolate());
  owner->host.log(owner->user, info[0].As<v8::Int32>()->Value(), owner->io + Word(info, 1),
                  Word(info, 2));
}

struct Callback {
  const char* name;
  v8::FunctionCallback function;
};

constexpr Callback kCallbacks[] = {
    {"text", Text},     {"utf8", Utf8},           {"copyIn", CopyIn}, {"copyWithin", CopyWithin},
    {"bytes", Bytes},   {"settle", Settle},       {"commit", Commit}, {"isPromise", IsPromise},
    {"scan", Scan},     {"log", Log},             {"byteLength", ByteLength},
    {"key", Key},       {"place", KeyPlace},      {"late", Late},
    {"copyOut", CopyOut}, {"list", List},
#ifdef NIGH_BENCH
    {"benchGet", BenchGet}, {"benchU32", BenchU32},
#endif
};
constexpr size_t kCallbackCount = sizeof(kCallbacks) / sizeof(kCallbacks[0]);

}  // namespace

const intptr_t* ExternalReferences() {
  static intptr_t references[kCallbackCount + 1];  // zero-terminated
  for (size_t i = 0; i < kCallbackCount; i++) {
    references[i] = reinterpret_cast<intptr_t>(kCallbacks[i].function);
  }
  return references;
}

Local<Object> NativeObject(Local<Context> context) {
  Isolate* isolate = context->GetIsolate();
  Local<Object> native = Object::New(isolate);
  for (const Callback& callback : kCallbacks) {
    Local<String> name = String::NewFromUtf8(isolate, callback.name).ToLocalChecked();
    Local<Function> function =
        v8::FunctionTemplate::New(isolate, callback.function, Local<Value>(),
                                  Local<v8::Signature>(), 0, v8::ConstructorBehavior::kThrow)
            ->GetFunction(context)
            .ToLocalChecked();
    function->SetName(name);
    native->Set(context, name, function).Check();
  }
  return native;
}

}  // namespace nigh
