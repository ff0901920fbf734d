// Starts V8, with a platform whose clock stands still during a call, and makes the startup
// snapshot. Once per process.
#include "internal.h"
#include "libplatform/libplatform.h"

namespace {

using v8::Context;
using v8::Function;
using v8::HandleScope;
using v8::Isolate;
using v8::Local;
using v8::String;
using v8::Value;

// The default platform, except that Date.now() inside a call is the time of its batch.
class Platform final : public v8::Platform {
 public:
  explicit Platform(std::unique_ptr<v8::Platform> inner) : inner_(std::move(inner)) {}
  v8::Platform* inner() { return inner_.get(); }
  v8::PageAllocator* GetPageAllocator() override { return inner_->GetPageAllocator(); }
  v8::ZoneBackingAllocator* GetZoneBackingAllocator() override {
    return inner_->GetZoneBackingAllocator();
  }
  int NumberOfWorkerThreads() override { return inner_->NumberOfWorkerThreads(); }
  std::shared_ptr<v8::TaskRunner> GetForegroundTaskRunner(Isolate* isolate) override {
    return inner_->GetForegroundTaskRunner(isolate);
  }
  void CallOnWorkerThread(std::unique_ptr<v8::Task> task) override {
    inner_->CallOnWorkerThread(std::move(task));
  }
  void CallDelayedOnWorkerThread(std::unique_ptr<v8::Task> task, double delay) override {
    inner_->CallDelayedOnWorkerThread(std::move(task), delay);
  }
  bool IdleTasksEnabled(Isolate* isolate) override { return inner_->IdleTasksEnabled(isolate); }
  std::unique_ptr<v8::JobHandle> PostJob(v8::TaskPriority priority,
                                         std::unique_ptr<v8::JobTask> task) override {
    return inner_->PostJob(priority, std::move(task));
  }
  double MonotonicallyIncreasingTime() override { return inner_->MonotonicallyIncreasingTime(); }
  double CurrentClockTimeMillis() override {
    return nigh::frozen_now_ms != 0 ? nigh::frozen_now_ms : inner_->CurrentClockTimeMillis();
  }
  v8::TracingController* GetTracingController() override {
    return inner_->GetTracingController();
  }

 private:
  std::unique_ptr<v8::Platform> inner_;
};

Platform* platform = nullptr;  // lives as long as the process

Local<String> Source(Isolate* isolate, NighSlice slice) {
  return String::NewFromUtf8(isolate, reinterpret_cast<const char*>(slice.data),
                             v8::NewStringType::kNormal, static_cast<int>(slice.length))
      .ToLocalChecked();
}

}  // namespace

namespace nigh {

thread_local double frozen_now_ms = 0;

void Pump(Isolate* isolate, uint32_t max) {
  while (max-- > 0 && v8::platform::PumpMessageLoop(platform->inner(), isolate)) {
  }
}

}  // namespace nigh

extern "C" {

const char* nigh_v8_version() { return v8::V8::GetVersion(); }

void nigh_start(int32_t worker_threads, const char* flags) {
  v8::V8::SetFlagsFromString(flags);
  platform = new Platform(v8::platform::NewDefaultPlatform(worker_threads));
  v8::V8::InitializePlatform(platform);
  v8::V8::Initialize();
}

const void* nigh_snapshot_make(NighSlice prelude, NighFault* fault) {
  auto snapshot = std::make_unique<nigh::Snapshot>();
  bool made = false;
  static std::string message;
  v8::SnapshotCreator creator(nigh::ExternalReferences());
  Isolate* isolate = creator.GetIsolate();
  {
    HandleScope handles(isolate);
    Local<Context> context = Context::New(isolate);
    Context::Scope entered(context);
    v8::TryCatch caught(isolate);
    Local<String> name = String::NewFromUtf8Literal(isolate, "nigh:prelude");
    v8::ScriptOrigin origin(isolate, name);
    v8::ScriptCompiler::Source source(Source(isolate, prelude), origin);
    Local<v8::Script> script;
    Local<Value> outer, attach, argument = nigh::NativeObject(context);
    if (v8::ScriptCompiler::Compile(context, &source, v8::ScriptCompiler::kEagerCompile)
            .ToLocal(&script) &&
        script->Run(context).ToLocal(&outer) && outer->IsFunction() &&
        outer.As<Function>()
            ->Call(context, v8::Undefined(isolate), 1, &argument)
            .ToLocal(&attach) &&
        attach->IsFunction()) {
      creator.SetDefaultContext(context);
      snapshot->attach_index = creator.AddData(context, attach.As<Function>());
      made = true;
    } else {
      message = "the prelude returned no function";
      if (caught.HasCaught() && !caught.Message().IsEmpty()) {
        nigh::Copy(isolate, caught.Message()->Get(), &message);
        fault->line = caught.Message()->GetLineNumber(context).FromMaybe(0);
        fault->column = caught.Message()->GetStartColumn(context).FromMaybe(-1) + 1;
      }
      fault->kind = kNighException;
      fault->message = {reinterpret_cast<const uint8_t*>(message.data()), message.size()};
      creator.SetDefaultContext(context);
    }
  }
  snapshot->blob = creator.CreateBlob(v8::SnapshotCreator::FunctionCodeHandling::kKeep);
  if (!made || snapshot->blob.data == nullptr) return nullptr;
  return snapshot.release();  // one per process, for good
}
}
