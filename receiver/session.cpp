// Threads, and the connection: session_versions.cpp has a version's path, session_engine.cpp what the engine calls.
#include <bascule/receiver/session.h>

#include <sys/random.h>
#include <unistd.h>

#include <array>

#include <boost/asio/post.hpp>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

namespace asio = boost::asio;

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
  }
  return number;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

Session::Session(ReceiverOptions options, Endpoint endpoint, std::optional<Token> token, const Scheme& scheme,
                 FlipGate& gate)
    : options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      scheme_(scheme),
      gate_(gate),
      instance_(random_number()),
      marks_(options_.stream),
      io_(1),
      awake_(io_),
      connection_(io_, options_, endpoint_, std::move(token), handlers()),
      scheme_channel_(
          io_, {.say = [this](const Transport& words,
                              const std::vector<int>& descriptors) { connection_.send(words, descriptors); },
                .received = [this](Version version, const absl::Status& status) { on_received(version, status); }}),
      preparer_(std::make_unique<Preparer>(io_, options_, endpoint_, scheme_,
                                           [this](const absl::Status& why) { poison(why); })) {
  thread_ = std::thread([this] {  // last: where it throws, nothing has begun
    own_thread_of_devices();
    const auto work = asio::make_work_guard(io_);
    io_.run();
  });
}

void Session::copy_by(std::unique_ptr<Copier> copier) {
  copier_ = std::move(copier);
  if (!scheme_.on_device || copier_->device() != kHost) endpoint_.device = copier_->device();
  preparer_->copy_by(copier_.get());
  leases_ = LeaseTracker(copies_ahead() ? LeaseTracker::Takes::kCopyAhead : LeaseTracker::Takes::kCopyAtFlip);
}

void Session::start() {
  asio::post(io_, [this] { connection_.start(); });
  preparer_->start();
}

Session::~Session() {
  if (!stopped_) stop();
}

bool Session::stop() {
  stopped_ = true;
  if (thread_.joinable()) {
    asio::post(io_, [this] {
      connection_.send(Bye{});
      connection_.hang_up();
      scheme_channel_.detach();
      io_.stop();
    });
    thread_.join();
  }
  scheme_channel_.stop();
  preparer_->stop();  // before what its jobs touch goes
  const absl::Status left = wait_until_left(Deadline(endpoint_.flip_timeout));
  if (!is_over(left))
    log(cat("kept mapped and leased as long as this process lives, for a device may still read it: ",
            message_of(left)));
  return is_over(left);
}

void Session::log(std::string_view line) const {
  if (options_.log) options_.log(line);
}

void Session::update(const std::function<void(ReceiverStatus&)>& change) {
  board_.update([&](StatusBoard::Posted& posted) { change(posted.status); });
}

// ---- searching, greeting ----

SenderConnection::Handlers Session::handlers() {
  return {
      .connected = [this] { greet(); },
      .unwelcomed =
          [this] {
            if (leases_.holds_nothing()) look_for_versions();
          },
      .heard = [this](Message message,
                      std::vector<UniqueFd> descriptors) { on_message(std::move(message), std::move(descriptors)); },
      .alone =
          [this](const absl::Status& why) {
            if (absl::IsUnavailable(why)) look_for_versions();  // not in a folder of another user
            retry(alone_.ok() ? why : absl::Status(why.code(), cat(message_of(why), "; ", message_of(alone_))),
                  absl::IsUnauthenticated(why));
          },
      .lost =
          [this](const absl::Status& why) {
            detach();
            retry(why);
          },
      .endpoint_gone = [this](const absl::Status& why) { on_endpoint_gone(why); },
      .endpoint_back = [this] { on_endpoint_back(); },
      .beat =
          [this] {
            if (const absl::Status kept = take_kept_device_errors(); !kept.ok())
              log(cat("freed memory on a device: ", message_of(kept)));
          }};
}

void Session::greet() {
  Hello hello;
  hello.worker = options_.worker;
  hello.instance = instance_;
  hello.pid = ::getpid();
  hello.host = host_name();
  hello.group = options_.group;
  hello.rank = options_.rank;
  hello.ranks = options_.ranks;
  LeaseTracker::Claim claim = leases_.greet();
  hello.epoch = claim.epoch;
  hello.serving = claim.serving;
  hello.held = std::move(claim.held);
  if (!options_.expected.empty()) {
    hello.expected = std::make_shared<const std::vector<TensorSpec>>(options_.expected);
  } else if (copier_) {
    if (auto expected = copier_->expected())
      hello.expected = std::make_shared<const std::vector<TensorSpec>>(*std::move(expected));
    hello.casts = true;
  }
  for (const FusedOrder& order : options_.fused) hello.fused.push_back(order.parts);
  if (!options_.compatibility_key.empty()) hello.compatibility_key = options_.compatibility_key;
  connection_.send(hello);
  board_.update([](StatusBoard::Posted& posted) { posted.greeted = true; });
}

void Session::detach() {
  connection_.hang_up();
  scheme_channel_.detach();
  if (leases_.lost()) lease_ = UniqueFd();  // the sender has heard it, or never will
  if (const LeaseTracker::Incoming* const incoming = leases_.incoming(); incoming != nullptr && incoming->single_copy) {
    if (incoming->yielded) leases_.doubt();
    incoming->yielded ? poison("the sender was lost while it wrote the single copy") : gate_.resume();
  }
  endpoint_gone_ = absl::OkStatus();
  drop_incoming();
  leases_.hang_up();
}

void Session::retry(const absl::Status& why, bool final_refusal) {
  if (leases_.lost()) return;
  board_.update([&](StatusBoard::Posted& posted) {
    posted.status.attached = posted.greeted = false;
    // The reason why it is poisoned says more than that no sender is there to mend it.
    if (posted.status.state != ReceiverState::kPoisoned || final_refusal) posted.status.error = why;
    posted.hopeless = final_refusal;
  });
  connection_.retry();
}

void Session::refuse_sender(const absl::Status& why, bool final_refusal) {
  log(message_of(why));
  connection_.send(Bye{.why = std::string(message_of(why))});
  detach();
  retry(why, final_refusal);
}

// A sender promises that neither epochs nor versions fall; this end holds it to that. An epoch that lost the numbers of
// before (sender.lock was removed) could bring other weights under a number that was served already.
absl::Status Session::check_newer(Epoch epoch, std::optional<Version> version) const {
  const LocalVersion* const has = leases_.against(epoch, version);
  if (has == nullptr) return absl::OkStatus();
  return failed_precondition("worker ", options_.worker, " has version ", has->version, " of epoch ", has->lease.epoch,
                             " and is offered ", version ? cat("version ", *version, " of ") : "", "epoch ", epoch,
                             ", though these numbers never fall: was sender.lock lost? restart the worker");
}

void Session::on_endpoint_gone(const absl::Status& why) {
  log(message_of(why));
  if (!connection_.connected()) return;  // then each search says it
  endpoint_gone_ = why;
  update([&](ReceiverStatus& status) {
    if (status.state != ReceiverState::kPoisoned) status.error = why;
  });
}

void Session::on_endpoint_back() {
  update([gone = std::exchange(endpoint_gone_, absl::OkStatus())](ReceiverStatus& status) {
    if (status.error == gone) status.error = absl::OkStatus();
  });
}

// ---- greeting, attached ----

void Session::on_message(Message message, std::vector<UniqueFd> descriptors) {
  if (leases_.lost()) {  // and said so: until the sender has heard it
    if (std::holds_alternative<Refused>(message) || std::holds_alternative<Bye>(message)) detach();
    return;
  }
  if (auto* welcome = std::get_if<Welcome>(&message)) return on_welcome(std::move(*welcome), std::move(descriptors));
  const auto broken = [&](std::string_view why) {
    detach();
    retry(invalid_argument("the sender broke the protocol: ", name_of(message), " ", why));
  };
  if (auto* prepare = std::get_if<Prepare>(&message)) return on_prepare(std::move(*prepare), std::move(descriptors));
  if (auto* words = std::get_if<Transport>(&message))
    return scheme_channel_.hear(std::move(words->bytes), std::move(descriptors));
  if (!descriptors.empty()) return broken("came with descriptors");
  if (auto* deliver = std::get_if<Deliver>(&message)) return on_deliver(std::move(*deliver));
  if (const auto* sealed = std::get_if<Sealed>(&message)) return on_sealed(*sealed);
  if (const auto* commit = std::get_if<Commit>(&message)) return on_commit(commit->version);
  if (const auto* abort = std::get_if<Abort>(&message)) return on_abort(*abort);
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (const auto* refused = std::get_if<Refused>(&message)) {
    detach();
    log(cat("refused: ", refused->why));
    return retry(failed_precondition(refused->why), refused->final);
  }
  if (std::holds_alternative<Bye>(message)) {
    detach();
    log("the sender said goodbye; serving on, detached");
    return retry(unavailable("the sender said goodbye"));
  }
  broken("is not a sender's message");
}

void Session::on_welcome(Welcome welcome, std::vector<UniqueFd> descriptors) {
  if (welcome.digest_number != kDigestNumber)
    return refuse_sender(invalid_argument("the sender makes digests of function ", welcome.digest_number, ", expected ",
                                          kDigestNumber, "; run the same version of Bascule on both ends"),
                         true);
  connection_.welcomed();
  preparer_->cut_look();  // what the sender has goes first
  if (!endpoint_.over_tcp() && descriptors.size() < 2) {
    detach();
    return retry(invalid_argument("the welcome came with ", descriptors.size(), " descriptors, expected 2 or more"));
  }
  if (const absl::Status newer = check_newer(welcome.epoch, std::nullopt); !newer.ok()) return refuse_sender(newer);
  absl::StatusOr<ReadPlan> read_plan = preparer_->take(welcome.layout);
  if (!read_plan.ok())
    return refuse_sender(
        failed_precondition("its tensors cannot be made of those that are sent: ", message_of(read_plan.status())),
        true);
  if (!endpoint_.over_tcp()) {
    // The new pipe stands in for the old one: our leases of before are claimed in the hello.
    lease_ = std::move(descriptors.back());
    descriptors.pop_back();
  }
  board_.update([&](StatusBoard::Posted& posted) {
    ReceiverStatus& status = posted.status;
    status.attached = true;
    if (status.state != ReceiverState::kPoisoned) status.error = absl::OkStatus();  // else it still says what did it
    if (status.state == ReceiverState::kJoining) status.state = ReceiverState::kPending;
    posted.hopeless = false;
  });
  log(cat("joined epoch ", welcome.epoch));
  leases_.welcome(welcome.epoch, welcome.slots);
  // Memory that is held already stays as it is when its sender is still the same.
  std::shared_ptr<Attachment> known;
  for (std::shared_ptr<Attachment>& attachment : leases_.attachments())
    if (attachment->epoch() == welcome.epoch) known = std::move(attachment);
  preparer_->reach(std::move(welcome), std::move(descriptors), *std::move(read_plan), std::move(known),
                   [this, connection = leases_.connection()](absl::StatusOr<Preparer::Reached> reached) {
                     const absl::Status& why = reached.status();
                     if (is_sticky(why)) return lose(why);
                     if (connection != leases_.connection()) return;
                     if (reached.ok()) {
                       board_.update([&](StatusBoard::Posted& posted) { posted.status.path = reached->path; });
                       return scheme_channel_.attach(std::move(reached->reception));
                     }
                     connection_.send(Bye{.why = std::string(message_of(why))});
                     detach();
                     retry(annotate(why, "reach the sender's memory"), absl::IsUnimplemented(why));
                   });
  preparer_->keep_only(leases_.wanted());
}

// ---- without a sender ----
// A scheme that keeps files is looked through at every search and, while nothing is held, until a sender has welcomed
// this worker: a trainer that accepts may load its model for minutes before it welcomes a worker, or stand still. The
// greeting was sent before: the ack of the flip tells the sender what is served, and a lock on the file keeps the
// bytes, whatever the sender knows of its slot.

void Session::look_for_versions() {
  if (!scheme_.keeps_files || (copies_ahead() && !leases_.has_room())) return;
  preparer_->look(leases_.newest(), leases_.attachments(), back_set(),
                  [this](Preparer::Found found, bool cut) { on_found(std::move(found), cut); });
}

void Session::on_found(Preparer::Found found, bool cut) {
  if (leases_.lost() || absl::IsCancelled(found.status())) return;
  if (!found.ok()) {
    if (is_sticky(found.status())) return lose(found.status());
    alone_ = found.status();
    return update([&](ReceiverStatus& status) { status.error = alone_; });
  }
  if (!*found) return;
  alone_ = absl::OkStatus();
  LocalVersion local = **std::move(found);
  if (cut) return give_back(LeaseTracker::unwanted(std::move(local)));  // a sender came meanwhile, and brings its own
  update([](ReceiverStatus& status) {
    if (status.state == ReceiverState::kJoining) status.state = ReceiverState::kPending;
  });
  if (!is_follower()) return decide(std::move(local));
  const Version version = local.version;
  offer(std::move(local));
  board_.update([version](StatusBoard::Posted& posted) {
    posted.ready = true;
    posted.newest = std::max(posted.newest, version);
  });
}

}  // namespace bascule::inline v0
