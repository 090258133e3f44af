// Feeds a client's bytes to an HTTP connection over a pair of sockets, as the engine's server reads them. The target of
// a request chooses the parser of its body: completions, chats, tokenize, detokenize.
//
//   every connection ends once the client has sent everything
//   whatever is answered begins as an answer of HTTP/1.1 does, also to what is not HTTP
//   a request that is accepted stays within the model's bounds, and is refused with a reason otherwise
#include <sys/socket.h>
#include <unistd.h>

#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include <bascule/trainer_ref/engine/http/api_key.h>
#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/http/http_connection.h>
#include <bascule/transport/posix/unique_fd.h>

#include "fuzz.h"

namespace bascule::fuzz {
namespace {

namespace asio = boost::asio;

constexpr std::int64_t kMaxModelLen = 512;
constexpr std::size_t kMostBytes = 32 << 10;  // of an input: fits into a socket's buffer
const ref::HttpLimits kLimits{.max_body_bytes = 16 << 10, .max_header_bytes = 4 << 10};

ref::ModelCard make_card() {
  ref::ModelCard card;
  card.id = "tiny";
  card.eos_token_ids = {1};
  card.max_model_len = kMaxModelLen;
  card.max_batch = 8;
  card.max_choices = 12;
  card.worker = "engine-0";
  card.tokenizer = ref::Tokenizer::read(BASCULE_FIXTURES "/qwen2").value();
  card.vocab_size = card.tokenizer->ids();
  card.chat = ref::ChatTemplate::parse(
                  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}"
                  "{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}{% if tools %}"
                  "{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
                  {.max_bytes = 1u << 20, .max_steps = 100'000})
                  .value();
  return card;
}

void check(const ref::ApiRequest& request, const ref::ModelCard& card) {
  const ref::CompletionRequest& completion = request.completion;
  require(!completion.prompts.empty() && completion.n >= 1, "a request has a prompt and wants an answer");
  require(completion.choices() <= static_cast<std::size_t>(card.max_choices), "choices are bounded");
  for (const auto& prompt : completion.prompts) {
    require(static_cast<std::int64_t>(prompt.size()) + completion.max_tokens <= kMaxModelLen, "it fits the model");
    for (const std::int64_t id : prompt) require(id >= 0 && id < card.vocab_size, "tokens are the model's");
  }
}

absl::Status take_body(std::string_view target, std::string_view body) {
  static const ref::ModelCard card = make_card();
  if (target.starts_with("/t")) return ref::parse_tokenize(body, card).status();
  if (target.starts_with("/d")) return ref::parse_detokenize(body, card).status();
  const auto request =
      target.starts_with("/v1/chat") ? ref::parse_chat(body, card, 1) : ref::parse_completion(body, card, 1);
  if (request.ok()) check(*request, card);
  return request.status();
}

asio::awaitable<void> serve(ref::HttpConnection& connection) {
  const ref::HttpConnection::Judge judge = [](const ref::HttpHeader& header, bool) -> std::optional<ref::HttpAnswer> {
    const auto given = header[boost::beast::http::field::authorization];
    if (given.empty() || ref::gives_key({given.data(), given.size()}, "key")) return std::nullopt;
    return ref::refusal(401, "another key");
  };
  bool kept = true;
  while (kept) {
    const std::optional<ref::HttpRequest> request = co_await connection.read(kLimits, judge);
    if (!request) break;
    require(request->body().size() <= kLimits.max_body_bytes, "a body is bounded");
    const absl::Status status = take_body({request->target().data(), request->target().size()}, request->body());
    if (!status.ok())
      require_refusal(status, {absl::StatusCode::kNotFound, absl::StatusCode::kUnimplemented,
                               absl::StatusCode::kResourceExhausted});
    auto answer = status.ok() ? ref::answer(200, "{}") : ref::refusal(status);  // GCC 12 destroys a temporary twice
    kept = co_await connection.write(std::move(answer), request->keep_alive());
  }
  connection.finish();
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  if (size > fuzz::kMostBytes) return -1;
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "there are sockets");
  const UniqueFd client(ends[1]);
  fuzz::require(::write(client.get(), data, size) == static_cast<ssize_t>(size), "the input fits into the socket");
  ::shutdown(client.get(), SHUT_WR);
  boost::asio::io_context io(1);
  {
    boost::asio::ip::tcp::socket socket(io);
    socket.assign(boost::asio::ip::tcp::v4(), ends[0]);
    ref::HttpConnection connection(std::move(socket), "bascule-fuzz");
    boost::asio::co_spawn(io, fuzz::serve(connection), boost::asio::detached);
    io.run();
  }
  char begin[16] = {};
  const ssize_t got = ::recv(client.get(), begin, 9, MSG_DONTWAIT);
  fuzz::require(got <= 0 || std::string_view(begin).starts_with("HTTP/1.1 "), "an answer is HTTP/1.1");
  return 0;
}
