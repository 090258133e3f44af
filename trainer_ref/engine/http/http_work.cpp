#include <bascule/trainer_ref/engine/http/http_work.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kMostBytesHere = std::size_t{64} << 10;  // less than a millisecond

}  // namespace

boost::asio::awaitable<std::string> make_text(WorkPool& pool, std::shared_ptr<Waiting> waiting, std::size_t bytes,
                                              std::function<std::string()> make) {
  if (bytes <= kMostBytesHere) co_return make();
  OffThread<std::string> job = [make](const std::stop_token& /*stop*/) { return make(); };
  const absl::StatusOr<std::string> text = co_await off_thread(pool, std::move(waiting), bytes, std::move(job));
  if (absl::IsResourceExhausted(text.status())) co_return make();
  co_return text.value_or("");
}

}  // namespace bascule::ref
