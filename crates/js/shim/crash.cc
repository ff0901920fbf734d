// Handles signals that end the process by its own fault. Rust first writes which function ran. Then
// a fault goes on to the handler that was there before, and a signal that was sent ends the
// process. Any thread.
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT};
struct sigaction before[sizeof(kSignals) / sizeof(kSignals[0])];
void (*tell)() = nullptr;

void OnSignal(int signal, siginfo_t* info, void*) {
  tell();
  if (info->si_code <= 0) {  // sent, by abort() too: nothing happens again by itself
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  for (size_t at = 0; at < sizeof(kSignals) / sizeof(kSignals[0]); at++) {
    if (kSignals[at] == signal) sigaction(signal, &before[at], nullptr);
  }
}

}  // namespace

extern "C" {

void nigh_on_crash(void (*callback)()) {
  tell = callback;
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;  // Rust gives each of its threads a second stack
  for (size_t at = 0; at < sizeof(kSignals) / sizeof(kSignals[0]); at++) {
    sigaction(kSignals[at], &action, &before[at]);
  }
}

void nigh_write_error(NighSlice text) {
  ssize_t written = write(STDERR_FILENO, text.data, text.length);
  (void)written;  // the process ends: there is no one to report an error to
}
}
