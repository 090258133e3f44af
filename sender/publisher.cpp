#include "sender/publisher.h"

#include <algorithm>
#include <utility>

#include "kernels/digest.h"
#include "schemes/registry.h"
#include "sender/endpoint_lock.h"
#include "transport/device.h"
#include "transport/posix/private_folder.h"
#include "transport/text.h"

namespace bascule {
namespace {

// What in-place readers on a GPU take from the seal to the last ack, and some. A thread that slept meanwhile would wake
// 40 us late, which is a third of it; see transport/stay_awake.h.
constexpr absl::Duration kAwakeBehindThePack = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<std::shared_ptr<Publisher>> Publisher::open(SenderOptions options) {
  BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(options.endpoint));
  BASCULE_ASSIGN(const Scheme* const scheme, scheme_for(endpoint, options.scheme));
  if (!scheme->keeps_files && (endpoint.durable || endpoint.fresh))
    return invalid_argument("endpoint \"", options.endpoint, "\": ", endpoint.durable ? "durable" : "fresh",
                            "=on needs a scheme that keeps files, which ", scheme->name, " does not");
  BASCULE_ASSIGN(std::optional<Token> token, Token::find(endpoint));
  if (endpoint.folder.empty())
    return failed_precondition("endpoint \"", options.endpoint,
                               "\": no place for the sender's state, as neither "
                               "XDG_STATE_HOME nor HOME is set; write state=FOLDER");
  std::shared_ptr<Publisher> made(new Publisher(std::move(endpoint), options.threads));
  made->scheme_ = scheme;
  BASCULE_TRY(make_private_folder(made->endpoint_.folder));
  BASCULE_ASSIGN(EndpointLock lock, EndpointLock::take(made->endpoint_.lock_file()));
  BASCULE_ASSIGN(made->control_page_, ControlPage::make(lock.epoch()));
  BASCULE_ASSIGN(made->transport_, scheme->make_sender(made->endpoint_, lock.epoch()));
  BASCULE_ASSIGN(made->coordinator_,
                 Coordinator::start(made->endpoint_, *made->transport_, std::move(lock), std::move(token),
                                    std::move(options.log), std::move(options.trace)));
  return made;
}

absl::Status Publisher::register_model(std::unique_ptr<TensorSource> source) {
  if (registration_)
    return failed_precondition("register_model: a model is registered already; one sender and one path a model");
  BASCULE_ASSIGN(Registration made, Registration::make(std::move(source), endpoint_.wire_dtype));
  if (single_copy() && made.casts())
    return invalid_argument("slots=1: the parameters live in the slot and cannot be cast on the way; leave wire_dtype ",
                            "out, or use slots=2");
  if (single_copy() && made.device() != kHost && !scheme_->on_device)
    return invalid_argument("slots=1: the parameters live in the slot; they lie on device ", made.device(), ", and ",
                            scheme_->name, " keeps its slots in host memory; use slots=2, or ",
                            names_of_schemes(/*on_device=*/true));
  BASCULE_ASSIGN(packer_, Packer::choose(*scheme_, made.device(), pool_));
  if (packer_->enqueues()) {
    sealer_.emplace();
    sealer_->submit(own_thread_of_devices);
  }
  registration_ = std::move(made);
  coordinator_->register_layout(registration_->layout());
  if (!single_copy()) return absl::OkStatus();
  moved_ = open_slots();
  if (moved_.ok()) moved_ = move_into_slot();
  return moved_;
}

absl::StatusOr<Publisher::WorkerNames> Publisher::wait_for_workers(int count, absl::Duration timeout) {
  if (count < 0) return invalid_argument("wait_for_workers: expected a count of 0 or more, found ", count);
  if (!registration_) return failed_precondition("wait_for_workers: call register_model first; workers wait for it");
  return coordinator_->wait_for_workers(count, Deadline(timeout));
}

// ---- slots ----

// Slots are made at the first publication, and offered to whoever is there.
absl::Status Publisher::open_slots() {
  if (slots_) return absl::OkStatus();
  BASCULE_TRY(registration_->fuse(coordinator_->fused_wishes()));
  slots_ = std::make_shared<SlotSet>(SlotSet{.layout = registration_->layout(), .memory = {}});
  std::vector<OfferedSlot> offered;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(endpoint_.slots); ++i) {
    absl::StatusOr<OfferedSlot> made = make_slot({coordinator_->epoch(), i});
    if (!made.ok()) {
      for (const auto& [index, memory] : slots_->memory) transport_->drop({coordinator_->epoch(), index});
      slots_.reset();
      return made.status();
    }
    offered.push_back(*made);
  }
  coordinator_->open_slots(std::move(offered), slots_->layout, control_page_->descriptor());
  return absl::OkStatus();
}

absl::StatusOr<OfferedSlot> Publisher::make_slot(SlotId slot) {
  BASCULE_ASSIGN(SlotMemory memory, transport_->make_slot(slot, slots_->layout, registration_->device()));
  if (absl::Status reached = packer_->reach(memory); !reached.ok()) {
    transport_->drop(slot);
    return reached;
  }
  const auto [made, is_new] = slots_->memory.insert_or_assign(slot.index, std::move(memory));
  return OfferedSlot{.id = slot, .memory = &made->second};
}

void Publisher::drop_slot(SlotId slot) {
  if (slots_->memory.erase(slot.index) > 0) transport_->drop(slot);
}

// Single copy: from now on the trainer's parameters are the slot, and keep it alive.
absl::Status Publisher::move_into_slot() {
  std::map<std::string_view, std::byte*> places;
  for (const MutableTensorView& tensor : slots_->tensors({coordinator_->epoch(), 0})) places[tensor.name] = tensor.data;
  for (const Alias& alias : slots_->layout.aliases())
    places[alias.name] = places[slots_->layout.tensors()[alias.tensor].spec.name];
  return registration_->move_into(places, slots_);
}

// ---- one version ----

absl::Status Publisher::check_free(std::string_view call) {
  if (!registration_) return failed_precondition("no model is registered; call register_model first");
  if (loaned_) return failed_precondition("a loan is out; publish it or drop it first");
  if (pending_ == Pending::kSend)
    return failed_precondition("Cannot call ", call, call == "send_async()" ? " again" : "",
                               " while a previous send is pending. Call wait_async() first.");
  return settle_update();
}

// What an update_weights() came to stands in the next report.
absl::Status Publisher::settle_update() {
  if (pending_ != Pending::kUpdate) return absl::OkStatus();
  const absl::StatusOr<SendReport> report = settled();
  if (pending_ != Pending::kNothing) return report.status();
  UpdateReport update{.version = sealed_version_, .status = report.status(), .workers = {}, .warnings = {}};
  if (report.ok()) {
    update.workers = report->workers;
    update.warnings = report->warnings;
    updates_ = report->updates;  // settled() had moved them there
  }
  updates_.push_back(std::move(update));
  return absl::OkStatus();
}

absl::Status Publisher::begin_writing(Coordinator::Grant& grant, std::optional<OfferedSlot>& made, Deadline deadline) {
  for (int tries = 0;; ++tries) {
    if (grant.is_new) {
      BASCULE_ASSIGN(made, make_slot(grant.slot));
    }
    control_page_->begin(grant.slot.index);
    absl::Status begun = transport_->begin(grant.slot, control_page_->bytes_done(grant.slot.index), deadline);
    if (!absl::IsUnavailable(begun) || tries > 0 || single_copy()) return begun;
    grant = coordinator_->replace(grant);  // somebody whom the ring does not know still reads it
    for (const SlotId dropped : grant.dropped) drop_slot(dropped);
  }
}

absl::StatusOr<Publication> Publisher::begin(const WorkerNames& workers, Clock::time_point called, Deadline deadline) {
  BASCULE_TRY(open_slots());
  measured_ = {};
  BASCULE_ASSIGN(Coordinator::Grant grant, coordinator_->take(workers, deadline));
  for (const SlotId dropped : grant.dropped) drop_slot(dropped);
  std::optional<OfferedSlot> made;
  if (absl::Status begun = begin_writing(grant, made, deadline); !begun.ok()) {
    coordinator_->give_back(grant);
    return begun;
  }
  coordinator_->announce(grant, made, deadline);
  if (single_copy()) {
    if (absl::Status yielded = coordinator_->wait_yielded(grant.version, settles_by()); !yielded.ok()) {
      give_back_version(grant.slot);
      coordinator_->abandon(grant.version, yielded);
      return yielded;
    }
  }
  measured_.wait = seconds_between(called, Clock::now());
  followed_ = grant.followed;
  return Publication{
      .version = grant.version, .slot = grant.slot, .bytes = slots_->layout.bytes(), .digest = std::nullopt};
}

void Publisher::seal(Publication publication, std::optional<Digest> digest, Deadline deadline) {
  warnings_.clear();
  if (digest && published_.digest == digest)
    warnings_.push_back(cat("version ", publication.version, " has the same bytes as version ", published_.version,
                            ": the weights did not change between the two sends"));
  sealed_version_ = publication.version;
  publication.digest = digest;
  control_page_->seal(publication.slot.index, publication.version, publication.bytes, digest);
  if (absl::Status sealed = transport_->seal(publication); !sealed.ok())
    return coordinator_->abandon(publication.version, annotate(sealed, cat("seal version ", publication.version)));
  coordinator_->seal(publication.version, digest, deadline);
}

absl::Status Publisher::stage(std::string_view call, TensorSource* weights, const WorkerNames& workers, Pending pending,
                              bool wait) {
  const Clock::time_point called = Clock::now();
  BASCULE_TRY(check_free(call));
  if (single_copy())
    return failed_precondition(call, ": with slots=1 the parameters live in the slot; use loan(), step, publish()");
  BASCULE_ASSIGN(Packing packing, registration_->packing(weights));
  if (!slots_) {  // now the layout becomes final
    BASCULE_TRY(open_slots());
    BASCULE_ASSIGN(packing, registration_->packing(weights));
  }
  BASCULE_TRY(packer_->plan(packing));
  const Deadline asked(endpoint_.timeout);
  BASCULE_ASSIGN(const Publication publication, begin(workers, called, asked));
  // A send that waited long for its slot still has time to fill it, and workers to prepare it.
  const absl::Duration least = std::min(endpoint_.timeout, endpoint_.flip_timeout);
  const Deadline deadline(std::max(asked.at(), Clock::now() + absl::ToChronoNanoseconds(least)));
  packing.followed = followed_;
  const Clock::time_point start = Clock::now();
  if (absl::Status packed =
          packer_->pack(packing, slots_->memory.at(publication.slot.index), endpoint_.digest != DigestMode::kOff,
                        control_page_->bytes_done(publication.slot.index));
      !packed.ok()) {
    packed = annotate(packed, cat("pack version ", publication.version));
    sealed_version_ = publication.version;
    coordinator_->abandon(publication.version, packed);
    return packed;
  }
  if (packer_->enqueues() && !wait) {
    finish_behind(publication, start, deadline);
  } else {
    finish(publication, start, deadline);
  }
  pending_ = pending;
  return absl::OkStatus();
}

void Publisher::finish(Publication publication, Clock::time_point packing_since, Deadline deadline) {
  const absl::StatusOr<std::optional<Digest>> digest = packer_->finish(deadline);
  measured_.pack = seconds_between(packing_since, Clock::now());
  if (digest.ok()) return seal(publication, *digest, deadline);
  warnings_.clear();
  sealed_version_ = publication.version;
  coordinator_->abandon(publication.version, annotate(digest.status(), cat("pack version ", publication.version)));
}

void Publisher::finish_behind(const Publication& publication, Clock::time_point packing_since, Deadline deadline) {
  {
    const std::lock_guard lock(sealing_mutex_);
    sealing_ = true;
  }
  sealer_->submit([this, publication, packing_since, deadline] {
    finish(publication, packing_since, deadline);
    const std::lock_guard lock(sealing_mutex_);
    sealing_ = false;
    sealed_.notify_all();
  });
}

bool Publisher::sealed_by(Deadline deadline) {
  std::unique_lock lock(sealing_mutex_);
  return sealed_.wait_until(lock, deadline.at(), [this] { return !sealing_; });
}

// Of what the caller wrote into a slot.
absl::StatusOr<std::optional<Digest>> Publisher::digest_of(SlotId slot, bool want_digest, Deadline deadline) {
  BASCULE_TRY(packer_->digest(bytes_of(slot), want_digest, registration_->stream()));
  return packer_->finish(deadline);
}

absl::StatusOr<SendReport> Publisher::settled(Deadline deadline) {
  std::optional<absl::StatusOr<SendReport>> done;
  if (sealed_by(deadline))
    done = coordinator_->wait_settled(sealed_version_, deadline,
                                      scheme_->on_device ? kAwakeBehindThePack : absl::ZeroDuration());
  if (!done) return deadline_exceeded("the send has not settled yet; it stays pending");
  pending_ = Pending::kNothing;
  absl::StatusOr<SendReport> report = *std::move(done);
  if (!report.ok()) return report;
  published_ = {.version = report->version, .digest = report->digest};
  report->seconds.wait = measured_.wait;
  report->seconds.pack = measured_.pack;
  report->memory = slots_->memory.begin()->second.description;
  if (const absl::Status kept = take_kept_device_errors(); !kept.ok())
    report->warnings.push_back(cat("let go of memory on a device: ", message_of(kept)));
  report->warnings.insert(report->warnings.end(), warnings_.begin(), warnings_.end());
  warnings_.clear();
  report->updates = std::exchange(updates_, {});
  return report;
}

absl::StatusOr<SendReport> Publisher::settled() {
  absl::StatusOr<SendReport> report = settled(settles_by());
  if (pending_ == Pending::kNothing) return report;
  pending_ = Pending::kUpdate;
  return deadline_exceeded("the send had not settled when its deadlines had passed; did this process stand still? The ",
                           "next call waits for it, and its report tells what came of it");
}

// ---- loans ----

absl::StatusOr<Publication> Publisher::lend(const WorkerNames& workers) {
  BASCULE_TRY(check_free("loan()"));
  if (!moved_.ok())
    return failed_precondition("loan(): register_model did not move the parameters into the slot: ", message_of(moved_),
                               "; make a new sender");
  BASCULE_ASSIGN(const Publication publication, begin(workers, Clock::now(), Deadline(endpoint_.timeout)));
  loaned_ = true;
  return publication;
}

absl::StatusOr<SendReport> Publisher::publish(const Publication& publication) {
  loaned_ = false;
  pending_ = Pending::kSend;
  absl::Status stayed = single_copy() ? registration_->check_moved() : absl::OkStatus();
  if (!stayed.ok()) {
    sealed_version_ = publication.version;
    coordinator_->abandon(publication.version, stayed, /*torn=*/true);
    return settled();
  }
  const Clock::time_point start = Clock::now();
  const Deadline deadline(endpoint_.timeout);
  const absl::StatusOr<std::optional<Digest>> digest =
      digest_of(publication.slot, endpoint_.digest != DigestMode::kOff, deadline);
  measured_.pack = seconds_between(start, Clock::now());
  if (digest.ok()) {
    seal(publication, *digest, deadline);
  } else {
    sealed_version_ = publication.version;
    coordinator_->abandon(publication.version, annotate(digest.status(), cat("publish version ", publication.version)),
                          single_copy());
  }
  return settled();
}

// A dropped loan. Of a single copy the old version is still there only if not a byte was changed.
void Publisher::take_back(const Publication& publication) {
  loaned_ = false;
  bool torn = single_copy();
  if (torn && published_.digest) {
    const auto digest = digest_of(publication.slot, true, Deadline(endpoint_.timeout));
    torn = !digest.ok() || *digest != published_.digest;
  }
  if (single_copy() && !torn) give_back_version(publication.slot);
  coordinator_->abandon(publication.version, absl::AbortedError("the loan was dropped"), torn);
}

// Of a single copy that nobody wrote to: it is the last version still, and who joins looks at the control page.
void Publisher::give_back_version(SlotId slot) {
  control_page_->seal(slot.index, published_.version, slots_->layout.bytes(), published_.digest);
}

}  // namespace bascule
