// Session before a welcome: how a sender is found, greeted and lost, and what is served without one.
#include <bascule/receiver/session.h>

#include <unistd.h>

#include <array>

#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

// ---- searching, greeting ----

SenderConnection::Handlers Session::handlers() {
  return {.connected = [this] { greet(); },
          .unwelcomed =
              [this] {
                if (leases_.holds_nothing()) look_for_versions();
              },
          .heard =
              [this](Message message, std::vector<UniqueFd> descriptors) {
                // An exception may come after it has hung up: then the channel would report nothing.
                const absl::Status handled = caught([&] { on_message(std::move(message), std::move(descriptors)); });
                if (!handled.ok()) fail(handled);
              },
          .alone =
              [this](const absl::Status& why) {
                if (absl::IsUnavailable(why)) look_for_versions();  // not in a folder of another user
                retry(alone_.ok() ? why : absl::Status(why.code(), cat(message_of(why), "; ", message_of(alone_))),
                      absl::IsUnauthenticated(why));
              },
          .lost =
              [this](const absl::Status& why) {
                static_cast<void>(until_done([&] { detach(); }));
                retry(why);
              },
          .endpoint_gone = [this](const absl::Status& why) { on_endpoint_gone(why); },
          .endpoint_back = [this] { on_endpoint_back(); },
          .beat =
              [this] {
                if (const absl::Status kept = take_kept_device_errors(); !kept.ok())
                  warn(cat("freed memory on a device: ", message_of(kept)));
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
  hello.encoded_expected = expected_;
  hello.casts = options_.expected.empty() && copier_;
  for (const FusedOrder& order : options_.fused) hello.fused.push_back(order.parts);
  if (!options_.compatibility_key.empty()) hello.compatibility_key = options_.compatibility_key;
  connection_.send(hello);
  board_.update([](StatusBoard::Posted& posted) { posted.greeted = true; });
}

void Session::detach() {
  connection_.hang_up();
  scheme_channel_.detach();
  if (leases_.lost()) lease_ = UniqueFd();  // the sender has received the message, or never will
  if (const LeaseTracker::Incoming* const incoming = leases_.incoming(); incoming != nullptr)
    release_engine(incoming->yielded, "the sender was lost while it wrote the single copy");
  endpoint_gone_ = absl::OkStatus();
  drop_incoming();
  leases_.hang_up();
}

void Session::retry(const absl::Status& why, bool final_refusal) noexcept {
  if (leases_.lost()) return;
  board_.update([&](StatusBoard::Posted& posted) {
    posted.status.attached = posted.greeted = false;
    // A poisoned worker keeps the reason for that: it says more than that there is no sender.
    if (posted.status.state != ReceiverState::kPoisoned || final_refusal) posted.status.error = why;
    posted.hopeless = final_refusal;
  });
  connection_.retry(final_refusal);
}

// An exception has left a handler of the I/O thread, and its work for this connection is lost.
void Session::fail(const absl::Status& why) noexcept {
  static_cast<void>(until_done([&] { detach(); }));
  warn(message_of(why));
  retry(why);
}

void Session::refuse_sender(const absl::Status& why, bool final_refusal) {
  warn(message_of(why));
  connection_.send(Bye{.why = std::string(message_of(why))});
  detach();
  retry(why, final_refusal);
}

// A sender promises that neither epochs nor versions decrease; this checks it. An epoch that lost the earlier numbers
// (because sender.lock was removed) could bring other weights under a number that was already served.
absl::Status Session::check_newer(Epoch epoch, std::optional<Version> version) const {
  const LocalVersion* const has = leases_.against(epoch, version);
  if (has == nullptr) return absl::OkStatus();
  return failed_precondition("worker ", options_.worker, " has version ", has->version, " of epoch ", has->lease.epoch,
                             " and is offered ", version ? cat("version ", *version, " of ") : "", "epoch ", epoch,
                             ", though these numbers never decrease: was sender.lock lost? restart the worker");
}

void Session::on_endpoint_gone(const absl::Status& why) {
  warn(message_of(why));
  if (!connection_.connected()) return;  // then each search reports it
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

// ---- without a sender ----
// If the scheme keeps files, each search also looks for versions in them. While nothing is held, this goes on until a
// sender has welcomed this worker, because a trainer that accepts connections may load its model for minutes first, or
// stand still. The greeting is sent already, so the ack of the flip tells the sender what is served, and a lock on the
// file keeps its bytes, whatever the sender knows about its slot.

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
  if (cut)
    return give_back(LeaseTracker::unwanted(std::move(local)));  // a sender came meanwhile, with its own versions
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
