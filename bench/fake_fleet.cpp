#include <bascule/bench/fake_fleet.h>

#include <unistd.h>

#include <boost/asio/local/stream_protocol.hpp>

#include <algorithm>
#include <map>

#include <bascule/transport/status.h>

namespace bascule::bench {

struct FakeFleet::Worker {
  std::string name;
  std::uint64_t instance = 0;
  std::shared_ptr<Channel> channel{};
  UniqueFd lease{};
  bool welcomed = false;
  std::optional<Prepare> incoming{}, serving{};
};

FakeFleet::FakeFleet(Endpoint endpoint, std::vector<TensorSpec> expected)
    : heartbeat_(io_),
      endpoint_(std::move(endpoint)),
      expected_(expected.empty() ? nullptr : std::make_shared<const std::vector<TensorSpec>>(std::move(expected))) {
  beat();
}
FakeFleet::~FakeFleet() = default;

absl::Status FakeFleet::join(int count) {
  using Local = boost::asio::local::stream_protocol;
  std::vector<std::shared_ptr<Worker>> joining;
  for (int i = 0; i < count; ++i, ++next_) {
    Local::socket socket(io_);
    boost::system::error_code error;
    socket.connect(Local::endpoint(endpoint_.control_socket().string()), error);
    if (error) return errno_status(error.value(), cat("connect worker ", i + 1, " of ", count));
    auto worker = std::make_shared<Worker>(Worker{.name = cat("fake-", next_), .instance = next_});
    worker->channel = std::make_shared<Channel>(Channel::Socket(std::move(socket)));
    joining.push_back(std::move(worker));
  }
  Hello hello;
  hello.pid = ::getpid();
  hello.expected = expected_;
  for (const std::shared_ptr<Worker>& worker : joining) {
    worker->channel->start(
        [this, weak = std::weak_ptr(worker)](const Message& message, std::vector<UniqueFd> descriptors) {
          if (const auto live = weak.lock()) on_message(live, message, std::move(descriptors));
        },
        [this, weak = std::weak_ptr(worker)](const absl::Status& why) {
          if (why_.empty()) why_ = message_of(why);
          ++lost_;
          if (const auto closed = weak.lock()) drop(*closed);
        });
    hello.worker = worker->name;
    hello.instance = worker->instance;
    worker->channel->send(hello);
    workers_.push_back(worker);
  }
  return absl::OkStatus();
}

void FakeFleet::drop(const Worker& worker) {
  std::erase_if(workers_, [&worker](const auto& each) { return each.get() == &worker; });
}

void FakeFleet::run_until(const std::function<bool()>& done, Deadline deadline) {
  while (!done() && !deadline.passed()) {
    io_.restart();
    if (io_.run_one_until(deadline.at()) > 0) io_.poll();
  }
}

int FakeFleet::welcomed() const {
  return static_cast<int>(std::ranges::count_if(workers_, [](const auto& worker) { return worker->welcomed; }));
}

int FakeFleet::serving(Version at_least) const {
  return static_cast<int>(std::ranges::count_if(
      workers_, [at_least](const auto& worker) { return worker->serving && worker->serving->version >= at_least; }));
}

void FakeFleet::flip(Worker& worker, Version version) {
  if (!worker.incoming || worker.incoming->version != version) return;
  worker.channel->send(Ack{.version = version});
  if (worker.serving) worker.channel->send(Released{.slot = worker.serving->slot, .lease = worker.serving->lease});
  worker.serving = std::exchange(worker.incoming, std::nullopt);
}

void FakeFleet::on_message(const std::shared_ptr<Worker>& worker, const Message& message,
                           std::vector<UniqueFd> descriptors) {
  Channel& channel = *worker->channel;
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    worker->incoming = *prepare;
    channel.send(Ready{.version = prepare->version});
  } else if (const auto* sealed = std::get_if<Sealed>(&message)) {
    if (std::exchange(kill_when_sealed_, false)) return drop(*worker);
    channel.send(Prepared{.version = sealed->version});
    if (sealed->decided) flip(*worker, sealed->version);
  } else if (const auto* decided = std::get_if<Decided>(&message)) {
    flip(*worker, decided->version);
  } else if (std::holds_alternative<Abort>(message)) {
    if (worker->incoming) channel.send(Released{.slot = worker->incoming->slot, .lease = worker->incoming->lease});
    worker->incoming.reset();
  } else if (std::holds_alternative<Welcome>(message)) {
    if (!descriptors.empty()) worker->lease = std::move(descriptors.back());
    worker->welcomed = true;
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    why_ = refused->why;
    ++lost_;
    drop(*worker);
  }
}

void FakeFleet::beat() {
  for (const auto& worker : workers_)
    if (worker->welcomed) worker->channel->send(Heartbeat{});
  heartbeat_.expires_after(on_clock(endpoint_.heartbeat));
  heartbeat_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) beat();
  });
}

}  // namespace bascule::bench
