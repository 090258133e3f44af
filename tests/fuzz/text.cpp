// Feeds texts to the tokenizers of tests/trainer_ref/text/fixtures. The first byte chooses the tokenizer, by its place
// in the alphabet; the rest is the text. tests/tools/compare-tokenizers --corpus compares the ids of the kept corpus
// with Hugging Face's.
//
//   the tokenizers of bytes without a normalizer give each text back as it was
//   what any tokenizer decodes is UTF-8, the same at once and token by token
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/text/text_stream.h>
#include <bascule/trainer_ref/text/tokenizer.h>
#include <bascule/transport/utf8.h>

#include "fuzz.h"

namespace bascule::fuzz {
namespace {

constexpr std::array<std::string_view, 7> kExact = {"deepseek", "falcon", "gpt2", "llama3", "o200k", "starcoder", ""};

struct Family {
  std::string name;
  ref::Tokenizer tokenizer;
};

std::vector<Family> read_families() {
  std::vector<Family> families;
  for (const auto& entry : std::filesystem::directory_iterator(BASCULE_FIXTURES)) {
    auto tokenizer = ref::Tokenizer::read(entry.path());
    require(tokenizer.ok(), "the fixtures can be read");
    families.push_back(Family{entry.path().filename().string(), *std::move(tokenizer)});
  }
  std::ranges::sort(families, {}, &Family::name);
  return families;
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  static const std::vector<fuzz::Family> families = fuzz::read_families();
  fuzz::Input input(data, size);
  const auto& [name, tokenizer] = families[input.number(1) % families.size()];
  const std::string_view text = input.rest();
  const auto ids = tokenizer.encode(text);
  if (!ids.ok()) {
    fuzz::require_refusal(ids.status());
    fuzz::require(!is_utf8(text) || name == "characters", "every UTF-8 text has ids");
    return 0;
  }
  const std::string decoded = tokenizer.decode(*ids, /*with_special_tokens=*/true);
  fuzz::require(is_utf8(decoded), "a decoded text is UTF-8");
  const bool exact = std::ranges::find(fuzz::kExact, name) != fuzz::kExact.end();
  fuzz::require(!exact || decoded == text, "a text comes back as it was");
  for (const bool special : {false, true}) {
    ref::TextStream stream = tokenizer.stream(special);
    std::string streamed;
    for (const std::int64_t id : *ids) streamed += stream.push(id);
    streamed += stream.finish();
    fuzz::require(streamed == tokenizer.decode(*ids, special), "a stream decodes as all ids at once do");
  }
  return 0;
}
