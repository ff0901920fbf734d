// A read by native callback, as in a runtime that crosses into native code for each access. The
// bench `callback` compares it with the prelude's reads. Compiled only with the feature
// `bench-callback`.
#include <string.h>

#include "internal.h"

namespace nigh {
namespace {

// The value of a key, with its length in `bytes`; or null.
const uint8_t* Locate(NighIsolate* owner, const uint8_t* key, size_t length, size_t* bytes) {
  const uint8_t* arena = owner->current->arenas[0].base;
  auto word = [arena](size_t offset) {
    uint32_t value;
    memcpy(&value, arena + offset, 4);
    return value;
  };
  uint32_t hash = HashKey(key, length, owner->current->seed);
  uint32_t table = word(260);
  size_t base = size_t{table >> 6} << word(12);
  uint32_t mask = (1u << (table & 63)) - 1;
  for (uint32_t line = hash & mask, probes = 0; probes < 16; line = (line + 1) & mask, probes++) {
    bool open = false;
    for (size_t at = base + size_t{line} * 64, end = at + 64; at < end; at += 8) {
      uint32_t reference = word(at + 4);
      open |= reference == 0;
      if (word(at) != hash || reference <= 2) continue;
      size_t record = size_t{reference} * 16;
      if ((word(record + 28) & 0xffff) != length ||
          memcmp(arena + record + 32, key, length) != 0) {
        continue;
      }
      *bytes = word(record);
      return arena + record + 32 + ((length + 7) & ~size_t{7});
    }
    if (open) return nullptr;
  }
  return nullptr;
}

}  // namespace

// benchGet(key string): hashes, probes and compares in C++. Returns the value as a fresh
// Uint8Array, or undefined. Reads only tables that don't grow, and only window 0.
void BenchGet(const v8::FunctionCallbackInfo<v8::Value>& info) {
  v8::Isolate* isolate = info.GetIsolate();
  uint8_t key[256];
  v8::Local<v8::String> text = info[0].As<v8::String>();
  int length = text->Length();
  if (length > 256) return;
  text->WriteOneByte(isolate, key, 0, length, v8::String::NO_NULL_TERMINATION);
  size_t bytes = 0;
  const uint8_t* value = Locate(Owner(isolate), key, static_cast<size_t>(length), &bytes);
  if (value == nullptr) return;
  v8::Local<v8::ArrayBuffer> buffer = v8::ArrayBuffer::New(isolate, bytes);
  memcpy(buffer->GetBackingStore()->Data(), value, bytes);
  info.GetReturnValue().Set(v8::Uint8Array::New(buffer, 0, bytes));
}

// benchU32(number as key): the same, but returns only the first 4 bytes of the value as a number.
// That is the cheapest read with a crossing.
void BenchU32(const v8::FunctionCallbackInfo<v8::Value>& info) {
  uint8_t key[16];
  uint32_t n = info[0].As<v8::Uint32>()->Value();
  size_t length = 0;
  for (uint32_t rest = n; length == 0 || rest > 0; rest /= 10) length++;
  for (size_t at = length; at-- > 0; n /= 10) key[at] = static_cast<uint8_t>('0' + n % 10);
  size_t bytes = 0;
  const uint8_t* value = Locate(Owner(info.GetIsolate()), key, length, &bytes);
  if (value == nullptr || bytes < 4) return;
  uint32_t first;
  memcpy(&first, value, 4);
  info.GetReturnValue().Set(first);
}

}  // namespace nigh
