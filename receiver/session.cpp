// Threads, messages and the welcome. session_search.cpp covers the time before a welcome, session_versions.cpp a
// version's path, session_engine.cpp the engine's calls.
#include <bascule/receiver/session.h>

#include <sys/random.h>

#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {
namespace {

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
  }
  return number;
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
      io_thread_(IoThread::get()),
      io_(io_thread_->io()),
      scope_([this](const absl::Status& why) { fail(why); }),
      awake_(io_),
      connection_(io_, scope_, options_, endpoint_, std::move(token), handlers()),
      scheme_channel_(
          io_, scope_,
          {.say = [this](const Transport& message,
                         const std::vector<int>& descriptors) { connection_.send(message, descriptors); },
           .received = [this](Version version, const absl::Status& status) { on_received(version, status); }}),
      preparer_(std::make_unique<Preparer>(io_, scope_, options_, endpoint_, scheme_,
                                           [this](const absl::Status& why) { poison(why); })) {}

void Session::copy_by(std::unique_ptr<Copier> copier) {
  copier_ = std::move(copier);
  if (!scheme_.on_device || copier_->device() != kHost) endpoint_.device = copier_->device();
  preparer_->copy_by(copier_.get());
  leases_ = LeaseTracker(copies_ahead() ? LeaseTracker::Takes::kCopyAhead : LeaseTracker::Takes::kCopyAtFlip);
}

void Session::start() {
  if (!options_.expected.empty()) {
    expected_ = encode(options_.expected);
  } else if (copier_) {
    if (const auto expected = copier_->expected()) expected_ = encode(*expected);
  }
  post([this] { connection_.start(); });
}

Session::~Session() {
  if (!stopped_) stop();
}

bool Session::stop() {
  stopped_ = true;
  io_thread_->run([this] {
    scope_.close();
    awake_.end();
    connection_.send(Bye{});
    connection_.close();
    scheme_channel_.detach();
  });
  scheme_channel_.stop();
  preparer_->stop();       // before the objects that its jobs use are destroyed
  io_thread_->run([] {});  // handlers that were posted meanwhile are dropped, with what they hold
  const absl::Status left = wait_until_left(Deadline(endpoint_.flip_timeout));
  if (!is_over(left))
    warn(cat("slots stay mapped and leased until this process ends, because a device may still read them: ",
             message_of(left)));
  return is_over(left);
}

void Session::log_to(const std::function<void(std::string_view)>& sink, std::string_view line) noexcept {
  static_cast<void>(caught([&] {
    if (!sink) return;
    if (const std::optional<std::string> passed = log_limit_.pass(one_line(line), Clock::now())) sink(*passed);
  }));
}

void Session::update(const std::function<void(ReceiverStatus&)>& change) {
  board_.update([&](StatusBoard::Posted& posted) { change(posted.status); });
}

// ---- greeting, attached ----

void Session::on_message(Message message, std::vector<UniqueFd> descriptors) {
  leases_.make_room();   // an exception ends the connection, and nothing has changed
  if (leases_.lost()) {  // the sender was told; wait until it has received that
    if (std::holds_alternative<Refused>(message) || std::holds_alternative<Bye>(message)) detach();
    return;
  }
  if (auto* welcome = std::get_if<Welcome>(&message)) return on_welcome(std::move(*welcome), std::move(descriptors));
  const auto broken = [&](std::string_view why) {
    detach();
    retry(invalid_argument("the sender broke the protocol: ", name_of(message), " ", why));
  };
  if (auto* prepare = std::get_if<Prepare>(&message)) return on_prepare(std::move(*prepare), std::move(descriptors));
  if (auto* transport = std::get_if<Transport>(&message))
    return scheme_channel_.hear(std::move(transport->bytes), std::move(descriptors));
  if (!descriptors.empty()) return broken("came with descriptors");
  if (auto* deliver = std::get_if<Deliver>(&message)) return on_deliver(std::move(*deliver));
  if (const auto* sealed = std::get_if<Sealed>(&message)) return on_sealed(*sealed);
  if (const auto* decided = std::get_if<Decided>(&message)) return on_decided(decided->version);
  if (const auto* abort = std::get_if<Abort>(&message)) return on_abort(*abort);
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (const auto* refused = std::get_if<Refused>(&message)) {
    detach();
    warn(cat("refused: ", refused->why));
    return retry(failed_precondition(refused->why), refused->final);
  }
  if (std::holds_alternative<Bye>(message)) {
    detach();
    log("the sender said goodbye; still serving, detached");
    return retry(unavailable("the sender said goodbye"));
  }
  broken("is not a sender's message");
}

void Session::on_welcome(Welcome welcome, std::vector<UniqueFd> descriptors) {
  if (welcome.digest_number != kDigestNumber)
    return refuse_sender(invalid_argument("the sender uses digest function ", welcome.digest_number, ", expected ",
                                          kDigestNumber, "; run the same version of Bascule on both ends"),
                         true);
  connection_.welcomed();
  preparer_->cut_look();  // the sender's versions go first
  if (!endpoint_.over_tcp() && descriptors.size() < 2) {
    detach();
    return retry(invalid_argument("the welcome came with ", descriptors.size(), " descriptors, expected 2 or more"));
  }
  if (const absl::Status newer = check_newer(welcome.epoch, std::nullopt); !newer.ok()) return refuse_sender(newer);
  if (!endpoint_.over_tcp()) {
    // The new pipe replaces the old one: the hello has claimed our earlier leases.
    lease_ = std::move(descriptors.back());
    descriptors.pop_back();
  }
  board_.update([&](StatusBoard::Posted& posted) {
    ReceiverStatus& status = posted.status;
    status.attached = true;
    if (status.state != ReceiverState::kPoisoned) status.error = absl::OkStatus();  // else it keeps the reason
    if (status.state == ReceiverState::kJoining) status.state = ReceiverState::kPending;
    posted.hopeless = false;
  });
  log(cat("joined epoch ", welcome.epoch));
  leases_.welcome(welcome.epoch, welcome.slots);
  // If the sender is the same as before, memory that is held stays as it is.
  std::shared_ptr<Attachment> known;
  for (std::shared_ptr<Attachment>& attachment : leases_.attachments())
    if (attachment->epoch() == welcome.epoch) known = std::move(attachment);
  preparer_->reach(std::move(welcome), std::move(descriptors), std::move(known),
                   [this, connection = leases_.connection()](absl::StatusOr<Preparer::Reached> reached) {
                     const absl::Status& why = reached.status();
                     if (is_sticky(why)) return lose(why);
                     if (connection != leases_.connection()) return;
                     if (reached.ok() && !reached->fits.ok())
                       return refuse_sender(failed_precondition("its tensors cannot be made from the sender's: ",
                                                                message_of(reached->fits)),
                                            /*final_refusal=*/true);
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

}  // namespace bascule::inline v0
