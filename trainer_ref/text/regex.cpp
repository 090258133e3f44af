#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <bascule/trainer_ref/text/regex.h>

#include <array>
#include <new>
#include <string>

#include <bascule/trainer_ref/text/part.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

template <typename T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

std::string message_of_error(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR code_units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Regex::Code {
  Owned<pcre2_code> code;
};

absl::StatusOr<Regex> Regex::compile(std::string_view pattern) {
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(code_units(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error,
                                   &offset, context.get());
  if (code == nullptr) {
    return unread(cat("the regular expression '", pattern, "' (", message_of_error(error), " at byte ", offset, ")"));
  }
  auto owner = std::make_shared<Code>(Code{Owned<pcre2_code>(code, &pcre2_code_free)});
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if it cannot, PCRE2 interprets
  return Regex(std::move(owner));
}

struct Matcher::State {
  std::shared_ptr<const Regex::Code> code;
  Owned<pcre2_match_data> match;
};

Matcher::Matcher(const Regex& regex)
    : state_(new State{regex.code_,
                       Owned<pcre2_match_data>(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free)}) {
  if (state_->match == nullptr) throw std::bad_alloc();
}

Matcher::~Matcher() = default;

absl::StatusOr<std::optional<Span>> Matcher::next(std::string_view text, std::size_t from) {
  const auto search = [&](std::uint32_t options) {
    return pcre2_match(state_->code->code.get(), code_units(text), text.size(), from, PCRE2_NO_UTF_CHECK | options,
                       state_->match.get(), nullptr);
  };
  int result = search(0);
  // Machine code has 32 KiB of stack; the interpreter takes what it needs from the heap.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = search(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    return absl::ResourceExhaustedError(
        cat("a regular expression of the tokenizer could not be matched: ", message_of_error(result)));
  }
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(state_->match.get());
  return Span{ends[0], ends[1]};
}

}  // namespace bascule::ref
