// ThreadSanitizer's suppressions for every test program. Debian's Abseil is not instrumented: it counts the references
// to a Status's text and payloads by atomics that ThreadSanitizer does not see, so it takes the last owner's delete for
// a race with an earlier reader. Where the compiler ends the destructor of an Event with a jump into Abseil, only the
// destructor's frame is left. The function must be visible, or the sanitizer's library does not find it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n"
         "race:_Variant_storage<false, bascule::v0::event::Greeted\n"
         "called_from_lib:libabsl_status.so\n";
}
