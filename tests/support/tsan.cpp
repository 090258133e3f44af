// ThreadSanitizer's suppressions for every test program. Debian's Abseil is not instrumented: it counts the references
// to a Status's text and payloads by atomics that ThreadSanitizer does not see, so it takes the last owner's delete for
// a race with an earlier reader. The function must be visible, or the sanitizer's library does not find it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n"
         "called_from_lib:libabsl_status.so\n";
}
