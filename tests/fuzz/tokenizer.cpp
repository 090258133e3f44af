// Feeds a tokenizer.json and, after a zero byte, a text for it.
//
//   ids are in the vocabulary, and the same text has the same ids again
//   a text decoded token by token is the text decoded at once
//   equal files have equal fingerprints
#include <fcntl.h>
#include <unistd.h>

#include <bascule/trainer_ref/text/text_stream.h>
#include <bascule/trainer_ref/text/tokenizer.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/utf8.h>

#include "fuzz.h"
#include "support/temp_folder.h"

namespace bascule::fuzz {
namespace {

using absl::StatusCode;

void check(const ref::Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, special);
    if (!ids.ok()) {
      require_refusal(ids.status(), {StatusCode::kResourceExhausted});
      continue;
    }
    require(is_utf8(text), "only UTF-8 is encoded");
    ref::TextStream stream = tokenizer.stream(special);
    std::string streamed;
    for (const std::int64_t id : *ids) {
      require(id >= 0 && id < tokenizer.ids() && tokenizer.token_of(id), "an id is in the vocabulary");
      tokenizer.bytes_of(id);
      streamed += stream.push(id);
    }
    streamed += stream.finish();
    require(streamed == tokenizer.decode(*ids, special), "a stream decodes as all ids at once do");
    require(is_utf8(streamed), "a decoded text is UTF-8");
    require(*tokenizer.encode(text, special) == *ids, "a text has one encoding");
  }
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  static const test::TempFolder folder;
  fuzz::Input input(data, size);
  const std::string_view json = input.text();
  {
    const std::string file = (folder.path() / "tokenizer.json").string();
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    fuzz::require(::write(fd.get(), json.data(), json.size()) == static_cast<ssize_t>(json.size()), "it is written");
  }
  const auto tokenizer = ref::Tokenizer::read(folder.path());
  if (!tokenizer.ok()) {
    fuzz::require_refusal(tokenizer.status(), {absl::StatusCode::kUnimplemented});
    return 0;
  }
  fuzz::check(*tokenizer, input.rest());
  fuzz::require(ref::Tokenizer::read(folder.path())->fingerprint() == tokenizer->fingerprint(),
                "equal files have equal fingerprints");
  return 0;
}
