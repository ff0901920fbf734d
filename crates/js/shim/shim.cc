// Installs modules and runs batches. This folder is the only C++ of Nigh: V8 has no C interface.
//
//   Rust  --nigh_run-->  prelude's dispatch()  --callbacks.cc-->  NighHost (Rust)
//
// 1. Data passes through the io memory (layout: src/io/mod.rs), which JavaScript sees as an
//    ArrayBuffer. A context sees its arenas as further ones.
// 2. Both have V8's empty deleter. With any other, the garbage collector would count their bytes.
// 3. Runs on the isolate's thread.
// 4. No stop reaches V8 between Module::Evaluate() and the module's own code: V8 10.2 looks for one
//    several times there, and ends the process if it finds it at another time than the first. So
//    stops wait from before Evaluate() until the module's first statement, which Source() puts
//    before its code. No user code runs in between (checkAwait in the prelude).
#include "shim.h"

#include <string>

#include "internal.h"

using v8::Context;
using v8::HandleScope;
using v8::Isolate;
using v8::Local;
using v8::MaybeLocal;
using v8::Module;
using v8::Promise;
using v8::String;
using v8::Value;

namespace nigh {

void Copy(Isolate* isolate, Local<Value> value, std::string* out) {
  String::Utf8Value text(isolate, value);
  out->assign(*text != nullptr ? *text : "(unprintable)", *text != nullptr ? text.length() : 13);
}

void OnImportMeta(Local<Context> context, Local<Module>, Local<v8::Object>) {
  Isolate* isolate = context->GetIsolate();
  Owner(isolate)->stops.Release(isolate);
}

}  // namespace nigh

namespace {

// Line and column of a message; none if it is in the prelude, which users cannot see.
void Place(Isolate* isolate, Local<Context> context, Local<v8::Message> message,
           NighFault* fault) {
  fault->line = fault->column = 0;
  Local<Value> prelude = String::NewFromUtf8Literal(isolate, "nigh:prelude");
  if (message->GetScriptResourceName()->StrictEquals(prelude)) return;
  fault->line = message->GetLineNumber(context).FromMaybe(0);
  fault->column = message->GetStartColumn(context).FromMaybe(-1) + 1;
}

// The stack of a thrown value. A getter may invent it, so Rust reads only places from it.
void Stack(NighIsolate* owner, Local<Context> context, Local<Value> thrown, NighFault* fault) {
  Isolate* isolate = owner->isolate;
  Local<Value> stack;
  owner->stack.clear();
  if (thrown->IsNativeError() &&
      thrown.As<v8::Object>()
          ->Get(context, String::NewFromUtf8Literal(isolate, "stack"))
          .ToLocal(&stack) &&
      stack->IsString()) {
    nigh::Copy(isolate, stack, &owner->stack);
  }
  fault->stack = {reinterpret_cast<const uint8_t*>(owner->stack.data()), owner->stack.size()};
}

int32_t Fail(NighIsolate* owner, Local<Context> context, const v8::TryCatch& caught,
             NighFault* fault) {
  Isolate* isolate = owner->isolate;
  if (caught.HasTerminated()) return fault->kind = kNighTerminated;
  owner->message = "unknown error";
  owner->stack.clear();
  Local<v8::Message> message = caught.Message();
  if (!message.IsEmpty()) {
    nigh::Copy(isolate, message->Get(), &owner->message);
    Place(isolate, context, message, fault);
  }
  Local<Value> stack;
  if (caught.StackTrace(context).ToLocal(&stack)) nigh::Copy(isolate, stack, &owner->stack);
  fault->message = {reinterpret_cast<const uint8_t*>(owner->message.data()),
                    owner->message.size()};
  fault->stack = {reinterpret_cast<const uint8_t*>(owner->stack.data()), owner->stack.size()};
  return fault->kind = kNighException;
}

// Calls OnImportMeta. Behind it the first line of a source, which names the library, is a comment.
constexpr char kBegin[] = "import.meta;//";

MaybeLocal<String> Text(Isolate* isolate, NighSlice slice) {
  return String::NewFromUtf8(isolate, reinterpret_cast<const char*>(slice.data),
                             v8::NewStringType::kNormal, static_cast<int>(slice.length));
}

MaybeLocal<String> Source(Isolate* isolate, NighSlice slice) {
  std::string text(kBegin);
  text.append(reinterpret_cast<const char*>(slice.data), slice.length);
  return Text(isolate, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

MaybeLocal<Value> Evaluate(NighContext* target, Local<Context> context, Local<Module> module) {
  NighIsolate* owner = target->owner;
  Local<Value> undefined = v8::Undefined(owner->isolate);
  if (module->IsGraphAsync() &&
      target->check_await.Get(owner->isolate)->Call(context, undefined, 0, nullptr).IsEmpty()) {
    return MaybeLocal<Value>();
  }
  owner->stops.Hold();
  MaybeLocal<Value> result = module->Evaluate(context);
  owner->stops.Release(owner->isolate);  // it may have failed before the module's first statement
  return result;
}

int32_t Install(NighContext* target, NighSlice name, NighSlice text, uint32_t first_id,
                NighFault* fault) {
  NighIsolate* owner = target->owner;
  Isolate* isolate = owner->isolate;
  nigh::Entered entered(owner);
  HandleScope handles(isolate);
  Local<Context> context = target->context.Get(isolate);
  Context::Scope inside(context);
  v8::TryCatch caught(isolate);
  owner->current = target;
  Local<String> label, source_text;
  if (!Text(isolate, name).ToLocal(&label) || !Source(isolate, text).ToLocal(&source_text)) {
    return Fail(owner, context, caught, fault);
  }
  v8::ScriptOrigin origin(isolate, label, 0, 0, false, -1, Local<Value>(), false, false, true);
  v8::ScriptCompiler::Source source(source_text, origin);
  Local<Module> module;
  if (!v8::ScriptCompiler::CompileModule(isolate, &source).ToLocal(&module)) {
    return Fail(owner, context, caught, fault);
  }
  Local<v8::FixedArray> requests = module->GetModuleRequests();
  if (requests->Length() > 0) {
    Local<v8::ModuleRequest> request = requests->Get(context, 0).As<v8::ModuleRequest>();
    v8::Location place = module->SourceOffsetToLocation(request->GetSourceOffset());
    nigh::Copy(isolate, request->GetSpecifier(), &owner->message);
    fault->message = {reinterpret_cast<const uint8_t*>(owner->message.data()),
                      owner->message.size()};
    fault->line = place.GetLineNumber() + 1;
    fault->column = place.GetColumnNumber() + 1;
    return fault->kind = kNighImport;
  }
  auto resolve = [](Local<Context>, Local<String>, Local<v8::FixedArray>,
                    Local<Module>) -> MaybeLocal<Module> { return MaybeLocal<Module>(); };
  Local<Value> result;
  if (!module->InstantiateModule(context, resolve).FromMaybe(false) ||
      !Evaluate(target, context, module).ToLocal(&result)) {
    return Fail(owner, context, caught, fault);
  }
  target->microtasks->PerformCheckpoint(isolate);
  if (caught.HasTerminated() || isolate->IsExecutionTerminating()) {
    return fault->kind = kNighTerminated;
  }
  if (result->IsPromise()) {
    Local<Promise> promise = result.As<Promise>();
    if (promise->State() == Promise::kRejected) {
      promise->MarkAsHandled();
      isolate->ThrowException(promise->Result());
      Local<v8::Message> message = v8::Exception::CreateMessage(isolate, promise->Result());
      Fail(owner, context, caught, fault);
      nigh::Copy(isolate, message->Get(), &owner->message);
      fault->message = {reinterpret_cast<const uint8_t*>(owner->message.data()),
                        owner->message.size()};
      Place(isolate, context, message, fault);
      Stack(owner, context, promise->Result(), fault);
      return fault->kind;
    }
    if (promise->State() == Promise::kPending) return fault->kind = kNighAsync;
  }
  Local<Value> arguments[] = {module->GetModuleNamespace(),
                              v8::Integer::NewFromUnsigned(isolate, first_id)};
  if (target->install.Get(isolate)
          ->Call(context, v8::Undefined(isolate), 2, arguments)
          .IsEmpty()) {
    return Fail(owner, context, caught, fault);
  }
  return fault->kind = kNighOk;
}

}  // namespace

extern "C" {

int32_t nigh_module_install(NighContext* target, NighSlice name, NighSlice text, uint32_t first_id,
                            NighFault* fault) {
  NighIsolate* owner = target->owner;
  Isolate* isolate = owner->isolate;
  nigh::Entered entered(owner);
  HandleScope handles(isolate);
  v8::TryCatch caught(isolate);
  Install(target, name, text, first_id, fault);
  // Flags of exports and stacks of errors may be getters. The microtasks that they leave run now,
  // so that none runs in a call.
  if (!isolate->IsExecutionTerminating()) target->microtasks->PerformCheckpoint(isolate);
  if (caught.HasTerminated() || isolate->IsExecutionTerminating()) fault->kind = kNighTerminated;
  return fault->kind;
}

bool nigh_module_remove(NighContext* target, uint32_t first_id, uint32_t count) {
  NighIsolate* owner = target->owner;
  Isolate* isolate = owner->isolate;
  nigh::Entered entered(owner);
  HandleScope handles(isolate);
  Local<Context> context = target->context.Get(isolate);
  Context::Scope inside(context);
  v8::TryCatch caught(isolate);
  Local<Value> arguments[] = {v8::Integer::NewFromUnsigned(isolate, first_id),
                              v8::Integer::NewFromUnsigned(isolate, count)};
  return !target->remove.Get(isolate)
              ->Call(context, v8::Undefined(isolate), 2, arguments)
              .IsEmpty();
}

// Each batch pays for this: no handle, scope or argument more than needed. Call() enters the
// context.
int32_t nigh_run(NighContext* target, double now_ms) {
  NighIsolate* owner = target->owner;
  Isolate* isolate = owner->isolate;
  nigh::Entered entered(owner);
  HandleScope handles(isolate);
  v8::TryCatch caught(isolate);
  owner->current = target;
  nigh::frozen_now_ms = now_ms;
  bool done = !target->dispatch.Get(isolate)
                   ->Call(target->context.Get(isolate), v8::Undefined(isolate), 0, nullptr)
                   .IsEmpty();
  nigh::frozen_now_ms = 0;
  if (done) return kNighDone;
  return caught.HasTerminated() ? kNighStopped : kNighBroken;
}
}
