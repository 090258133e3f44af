#include <bascule/schemes/nccl/sender.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/delivery_planner.h>
#include <bascule/schemes/nccl/offer.h>
#include <bascule/schemes/nccl/options.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

// Inits that never ended. NCCL keeps a thread and 21 descriptors for each: 672 descriptors for 32.
constexpr int kMostAbandoned = 32;

std::shared_ptr<std::byte> bytes_of(const SlotMemory& memory) {
  if (memory.device != kHost) return memory.device_memory;
  return {std::shared_ptr<std::byte>(), const_cast<std::byte*>(memory.mapping.bytes().data() + memory.data_offset)};
}

}  // namespace

// Passes events from any thread to DeliveryPlanner, one at a time, and carries out its actions.
class Sender::Shared final : public Delivery, public std::enable_shared_from_this<Shared> {
 public:
  Shared(const Library& library, FindPlace find, std::uint64_t piece_bytes, Environment environment, int ctas,
         const CommGroupLimits& limits)
      : library_(library),
        find_place_(std::move(find)),
        ctas_(ctas),
        limits_(limits),
        piece_bytes_(piece_bytes),
        offer_(to_bytes(NcclOffer{.environment = std::move(environment), .piece_bytes = piece_bytes})),
        planner_(limits, piece_bytes) {}

  absl::Status use(int device);  // the device of the slots
  absl::StatusOr<SlotMemory> make_slot(std::uint64_t bytes, int device);
  const std::string& offer() const { return offer_; }
  void open(WorkerLine& line) override;
  bool starts_while_written() const override { return true; }
  void deliver(DeliveryOrder order, Done done) override;
  void stop(std::uint64_t number) override;
  void heard(WorkerId worker, std::string bytes, std::vector<UniqueFd> descriptors) override;
  void note(Event event) {
    run([this, event = std::move(event)]() mutable { handle(std::move(event)); });
  }
  void close() override;

 private:
  struct Order {
    DeliveryOrder order;
    Done done;
    std::shared_ptr<std::atomic<bool>> runs_out = std::make_shared<std::atomic<bool>>(false);
  };

  void run(std::function<void()> work);  // one at a time: on this thread, or on the one already running
  void handle(Event event);
  void carry_out(action::Say& say);
  void carry_out(action::Deliver& deliver);
  void carry_out(action::GiveUp& gives_up);
  void carry_out(action::Make& make);
  void carry_out(action::Warm& warm);
  void carry_out(action::Broadcast& broadcast);
  void carry_out(action::RunOut& runs_out);
  void carry_out(action::Leave& leave);
  void carry_out(action::Done& done);
  void carry_out(action::WakeAt& wake);
  void carry_out(action::Log& log);
  absl::Status join(const action::Make& make);
  void keep_time();

  const Library& library_;
  const FindPlace find_place_;
  const int ctas_;
  const CommGroupLimits limits_;
  const std::uint64_t piece_bytes_;
  const std::string offer_;

  std::mutex mutex_;  // for the next three
  std::deque<std::function<void()>> works_;
  bool working_ = false;
  std::optional<Clock::time_point> wakes_at_;
  std::condition_variable changed_;
  bool closed_ = false;            // under mutex_
  std::size_t communicators_ = 0;  // not ended; under mutex_
  std::thread time_;

  std::mutex place_mutex_;
  std::shared_ptr<Place> place_;        // of the slots; null before the first
  std::shared_ptr<std::byte> scratch_;  // for broadcasts without data

  // Used only in run().
  WorkerLine* line_ = nullptr;
  DeliveryPlanner planner_;
  std::map<std::uint64_t, Order> orders_;
  std::map<CommGroupId, std::unique_ptr<Communicator>> joined_;
};

// ---- slots ----

absl::Status Sender::Shared::use(int device) {
  const std::lock_guard lock(place_mutex_);
  if (place_) return absl::OkStatus();
  BASCULE_ASSIGN(std::shared_ptr<Place> place, find_place_(device));
  BASCULE_ASSIGN(scratch_, place->allocate(kWarmBytes, "a broadcast without data"));
  place_ = std::move(place);
  return absl::OkStatus();
}

absl::StatusOr<SlotMemory> Sender::Shared::make_slot(std::uint64_t bytes, int device) {
  BASCULE_TRY(use(device));
  std::shared_ptr<Place> place;
  {
    const std::lock_guard lock(place_mutex_);
    place = place_;
  }
  return place->make_slot(bytes);  // unlocked: the I/O thread does not wait for that
}

// ---- events ----

void Sender::Shared::run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  works_.push_back(std::move(work));
  if (std::exchange(working_, true)) return;
  while (!works_.empty()) {
    const std::function<void()> next = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    static_cast<void>(caught(next));  // a delivery that is cut short ends by its deadline
    lock.lock();
  }
  working_ = false;
  changed_.notify_all();
}

void Sender::Shared::handle(Event event) {
  for (Action& action : planner_.on(std::move(event), Clock::now()))
    std::visit([this](auto& each) { carry_out(each); }, action);
}

void Sender::Shared::open(WorkerLine& line) {
  run([this, &line] { line_ = &line; });
  time_ = std::thread([this] { keep_time(); });
}

void Sender::Shared::keep_time() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (!wakes_at_) {
      changed_.wait(lock, [this] { return closed_ || wakes_at_; });
      continue;
    }
    const Clock::time_point at = *wakes_at_;
    if (changed_.wait_until(lock, at, [&] { return closed_ || wakes_at_ != at; })) continue;
    wakes_at_.reset();
    lock.unlock();
    static_cast<void>(until_done([this] { note(event::Tick{}); }));
    lock.lock();
  }
}

void Sender::Shared::deliver(DeliveryOrder order, Done done) {
  run([this, order = std::move(order), done = std::move(done)] {
    orders_[order.number] = {.order = order, .done = done};
    handle(event::Wanted{.number = order.number, .version = order.publication.version, .workers = order.workers});
  });
}

void Sender::Shared::stop(std::uint64_t number) {
  run([this, number] {
    const auto order = orders_.find(number);
    if (order == orders_.end()) return;
    const bool whole =
        order->second.order.bytes_done->load(std::memory_order_acquire) >= order->second.order.publication.bytes;
    handle(event::Stopped{.number = number, .whole = whole});
  });
}

void Sender::Shared::heard(WorkerId worker, std::string bytes, std::vector<UniqueFd>) {
  run([this, worker, message = parse_message(bytes)] {
    if (message.ok()) return handle(event::Heard{.worker = worker, .message = *message});
    if (line_ != nullptr) line_->give_up(worker, message.status());
  });
}

// ---- actions ----

void Sender::Shared::carry_out(action::Say& say) {
  if (line_ != nullptr) line_->say(say.worker, to_bytes(say.message));
}

void Sender::Shared::carry_out(action::Deliver& deliver) {
  if (line_ != nullptr) line_->deliver(deliver.worker, deliver.version, to_bytes(deliver.message));
}

void Sender::Shared::carry_out(action::GiveUp& gives_up) {
  if (line_ != nullptr) line_->give_up(gives_up.worker, gives_up.why);
}

void Sender::Shared::carry_out(action::Log& log) {
  if (line_ != nullptr) line_->log(log.line);
}

void Sender::Shared::carry_out(action::Make& make) {
  if (absl::Status joined = join(make); !joined.ok()) {
    note(event::Made{.group = make.group, .status = std::move(joined)});
    note(event::Left{make.group});
  }
}

// The id is created only once all ranks wait for it: NCCL keeps a thread and a socket for each unused id.
absl::Status Sender::Shared::join(const action::Make& make) {
  if (Communicator::abandoned() >= kMostAbandoned)
    return failed_precondition("nccl: ", kMostAbandoned,
                               " communicators were never finished, and NCCL keeps threads and descriptors of each; "
                               "restart the trainer");
  std::shared_ptr<Place> place;
  {
    const std::lock_guard lock(place_mutex_);
    place = place_;
  }
  Rank rank{.group = make.group, .rank = 0, .ranks = static_cast<int>(make.workers.size()) + 1, .id = {}};
  if (const Code drawn = library_.get_unique_id(&rank.id); drawn != Code::kSuccess)
    return unavailable("nccl: create an id: ", library_.error_string(drawn));
  {
    const std::lock_guard lock(mutex_);
    ++communicators_;
  }
  const auto self = shared_from_this();
  joined_[make.group] = std::make_unique<Communicator>(
      library_, std::move(place), rank, Communicator::Options{.max_ctas = ctas_},
      Communicator::Handlers{
          .made = [self, group = make.group](
                      absl::Status status) { self->note(event::Made{.group = group, .status = std::move(status)}); },
          .ended =
              [self, group = make.group] {
                self->run([self, group] {
                  self->joined_.erase(group);
                  {
                    const std::lock_guard lock(self->mutex_);
                    --self->communicators_;
                  }
                  self->changed_.notify_all();
                  self->handle(event::Left{group});
                });
              }});
  for (int i = 1; i < rank.ranks; ++i)
    if (line_ != nullptr)
      line_->say(
          make.workers[static_cast<std::size_t>(i) - 1],
          to_bytes(GroupMessage{
              .kind = GroupMessage::Kind::kMake, .group = make.group, .rank = i, .ranks = rank.ranks, .id = rank.id}));
  return absl::OkStatus();
}

void Sender::Shared::carry_out(action::Warm& warm) {
  const auto joined = joined_.find(warm.group);
  if (joined == joined_.end()) return;
  joined->second->broadcast(
      warm_broadcast(scratch_, [self = shared_from_this(), group = warm.group](absl::Status status) {
        self->note(event::Warmed{.group = group, .status = std::move(status)});
      }));
}

void Sender::Shared::carry_out(action::Broadcast& broadcast) {
  const auto joined = joined_.find(broadcast.group);
  const auto found = orders_.find(broadcast.number);
  if (joined == joined_.end() || found == orders_.end()) return;
  const Order& order = found->second;
  const std::uint64_t bytes = order.order.publication.bytes;
  joined->second->broadcast(
      {.number = broadcast.number,
       .memory = bytes_of(*order.order.memory),
       .bytes = bytes,
       .from = broadcast.from,
       .piece_bytes = piece_bytes_,
       .written = [written = order.order.bytes_done, bytes,
                   runs_out = order.runs_out] { return *runs_out ? bytes : written->load(std::memory_order_acquire); },
       .enqueued = {},
       .done =
           [self = shared_from_this(), group = broadcast.group, number = broadcast.number](absl::Status status,
                                                                                           std::uint64_t) {
             self->note(event::Sent{.group = group, .number = number, .status = std::move(status)});
           }});
}

void Sender::Shared::carry_out(action::RunOut& runs_out) {
  if (const auto order = orders_.find(runs_out.number); order != orders_.end()) *order->second.runs_out = true;
}

void Sender::Shared::carry_out(action::Leave& leave) {
  if (const auto joined = joined_.find(leave.group); joined != joined_.end()) joined->second->abort();
}

void Sender::Shared::carry_out(action::Done& done) {
  const auto order = orders_.extract(done.number);
  if (order && line_ != nullptr) order.mapped().done(std::move(done.status));
}

void Sender::Shared::carry_out(action::WakeAt& wake) {
  const std::lock_guard lock(mutex_);
  wakes_at_ = wake.at;
  changed_.notify_all();
}

// ---- the end ----

void Sender::Shared::close() {
  run([this] {
    line_ = nullptr;
    orders_.clear();
    for (const auto& [group, communicator] : joined_) communicator->abort();
  });
  {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    // The memory of an abort that hangs stays with its thread.
    changed_.wait_for(lock, on_clock(limits_.leave), [this] { return communicators_ == 0 && !working_; });
  }
  if (time_.joinable()) time_.join();
}

// ---- Sender ----

absl::StatusOr<std::unique_ptr<SenderTransport>> Sender::make(const Dependencies& dependencies,
                                                              const Endpoint& endpoint) {
  BASCULE_ASSIGN(const Library* const library, dependencies.library());
  BASCULE_ASSIGN(Environment environment, read_environment(*library));
  return std::unique_ptr<SenderTransport>(new Sender(
      std::make_shared<Shared>(*library, dependencies.place, dependencies.piece_bytes, std::move(environment),
                               kCtas.in(endpoint).value_or(0), dependencies.limits)));
}

absl::StatusOr<SlotMemory> Sender::make_slot(SlotId, const Layout& layout, int device) {
  return shared_->make_slot(layout.bytes(), device);
}

// The slots may belong to another scheme (schemes/auto).
absl::StatusOr<Offer> Sender::offer(WorkerId worker, ConnectionKind, std::span<const OfferedSlot> slots) {
  if (!slots.empty()) BASCULE_TRY(shared_->use(slots.front().memory->device));
  shared_->note(event::Joined{worker});
  return Offer{.bytes = shared_->offer(), .descriptors = {}};
}

void Sender::remove(WorkerId worker) { shared_->note(event::Removed{worker}); }
Delivery* Sender::delivery() { return shared_.get(); }
Sender::~Sender() { shared_->close(); }

}  // namespace bascule::inline v0::nccl
