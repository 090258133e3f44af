// bascule-bench-tokenizer: encode and decode by the reference pair's tokenizer, on one core.
//
//   bascule-bench-tokenizer FOLDER TEXT [--benchmark_...]
//
// FOLDER has a tokenizer.json, TEXT is a file of UTF-8. It is encoded whole, and in pieces of 2 KiB, as prompts are.
// bytes_per_second counts the text's bytes.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <bascule/trainer_ref/text/tokenizer.h>
#include <bascule/trainer_ref/text/unicode.h>

namespace {

using bascule::ref::Tokenizer;

std::vector<std::string> pieces_of(const std::string& text, std::size_t bytes) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size(); at += pieces.back().size()) {
    const std::string_view next = std::string_view(text).substr(at, bytes);
    pieces.emplace_back(next.substr(0, bascule::ref::utf8_prefix(next)));
  }
  return pieces;
}

void count_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * static_cast<std::int64_t>(state.iterations()));
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text, std::size_t piece_bytes) {
  const std::vector<std::string> pieces = pieces_of(text, piece_bytes);
  for (auto _ : state) {
    for (const std::string& piece : pieces) benchmark::DoNotOptimize(tokenizer.encode(piece));
  }
  count_bytes(state, text.size());
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const auto token_ids = tokenizer.encode(text);
  if (!token_ids.ok()) return state.SkipWithError(token_ids.status().ToString().c_str());
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(*token_ids));
  count_bytes(state, text.size());
  state.counters["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(token_ids->size());
}

void read(benchmark::State& state, const std::string& folder) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::read(folder));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    std::fputs("bascule-bench-tokenizer: expected a folder with a tokenizer.json, and a file of text\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  const auto tokenizer = Tokenizer::read(folder);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "bascule-bench-tokenizer: %s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  std::stringstream stream;
  stream << std::ifstream(argv[2]).rdbuf();
  const std::string text = stream.str();
  const auto row = [](const char* name, auto measure) {
    benchmark::RegisterBenchmark(name, measure)->Unit(benchmark::kMillisecond);
  };
  row("encode/whole", [&](benchmark::State& state) { encode(state, *tokenizer, text, text.size()); });
  row("encode/2KiB", [&](benchmark::State& state) { encode(state, *tokenizer, text, std::size_t{2} << 10); });
  row("decode", [&](benchmark::State& state) { decode(state, *tokenizer, text); });
  row("read", [&](benchmark::State& state) { read(state, folder); });
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
