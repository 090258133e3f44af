#include <bascule/sender/publisher.h>

#include <algorithm>
#include <utility>

#include <bascule/schemes/registry.h>
#include <bascule/sender/endpoint_lock.h>
#include <bascule/sender/ranks/crew_packer.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/device.h>
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>
#include <bascule/transport/wire/channel.h>

namespace bascule::inline v0 {
namespace {

absl::Status check(const ExpectedWorkers& expected) {
  if (expected.count < 0)
    return invalid_argument("expect_workers: expected a count of 0 or more, found ", expected.count);
  if (std::ranges::find(expected.names, "") != expected.names.end())
    return invalid_argument("expect_workers: a name is empty");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Publisher>> Publisher::open(SenderOptions options) {
  return starting_threads("the sender", [&] { return open_with_threads(std::move(options)); });
}

absl::StatusOr<std::shared_ptr<Publisher>> Publisher::open_with_threads(SenderOptions options) {
  BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(options.endpoint));
  BASCULE_ASSIGN(const Scheme* const scheme, scheme_for(endpoint, options.scheme));
  BASCULE_TRY(check_compatibility_key(options.compatibility_key));
  BASCULE_TRY(check(options.expect_workers));
  BASCULE_TRY(check_ranks(options, *scheme, endpoint));
  if (options.held) {
    if (!scheme->hands_on)
      return unimplemented("endpoint \"", options.endpoint, "\": a version that never changes needs slots that a ",
                           "process can hand on to the next sender, which ", scheme->name, " does not have; use ",
                           names_of_schemes_that_hand_on());
    endpoint.held = true;
    endpoint.slots = 1;
  }
  if (options.threads < 0)
    return invalid_argument("threads: expected 0 (one per core) or more, found ", options.threads);
  BASCULE_ASSIGN(std::optional<Token> token, Token::find(endpoint.beside().value_or(endpoint)));
  if (endpoint.folder.empty())
    return failed_precondition("endpoint \"", options.endpoint,
                               "\": no place for the sender's state, as neither "
                               "XDG_STATE_HOME nor HOME is set; write state=FOLDER");
  std::shared_ptr<Publisher> made(new Publisher(std::move(endpoint), options.threads), End());
  made->scheme_ = scheme;
  if (!options.warn) options.warn = options.log;
  options.log = unless_silent(std::move(options.log), made->silence_);
  options.warn = unless_silent(std::move(options.warn), made->silence_);
  options.trace = unless_silent(std::move(options.trace), made->silence_);
  made->warn_ = options.warn;
  if (options.ranks > 1)
    made->crew_ = std::make_unique<Crew>(options.ranks, *scheme, made->endpoint_.timeout, options.interrupted,
                                         unfailing(options.trace));
  Acceptor::OnRank on_rank;
  std::function<std::vector<RankStatus>()> ranks;
  std::function<void()> watch_ranks;
  if (Crew* const crew = made->crew_.get()) {
    on_rank = [crew](const RankHello& hello) { return crew->admit(hello); };
    ranks = [crew] { return crew->status(); };
    watch_ranks = [crew] { crew->look_at_lines(); };
  }
  BASCULE_ASSIGN(UniqueFd folder, make_private_folder(made->endpoint_.folder, made->endpoint_.own_folder()));
  BASCULE_ASSIGN(EndpointLock lock, EndpointLock::take(std::move(folder), made->endpoint_.lock_file()));
  BASCULE_ASSIGN(made->slots_, SlotStore::make(*scheme, made->endpoint_, lock.epoch()));
  BASCULE_ASSIGN(made->coordinator_,
                 Coordinator::start(made->endpoint_, made->slots_->transport(), std::move(lock), std::move(token),
                                    {.compatibility_key = std::move(options.compatibility_key),
                                     .expect_workers = std::move(options.expect_workers),
                                     .log = std::move(options.log),
                                     .warn = std::move(options.warn),
                                     .trace = std::move(options.trace),
                                     .interrupted = std::move(options.interrupted),
                                     .on_rank = std::move(on_rank),
                                     .ranks = std::move(ranks),
                                     .watch_ranks = std::move(watch_ranks)}));
  return made;
}

void Publisher::End::operator()(Publisher* publisher) const {
  if (!publisher->coordinator_ || !publisher->coordinator_->is_on_own_thread()) {
    delete publisher;
    return;
  }
  *publisher->silence_ = true;  // in a callback
  end_elsewhere([publisher] {
    own_thread_of_devices();
    delete publisher;
  });
}

Publisher::~Publisher() {
  if (!slots_) return;
  if (const absl::Status parted = slots_->part_from_readers(); !parted.ok() && warn_)
    warn_(cat("the sender at ", endpoint_.place(), " ends, but its engines still see writes to the parameters: ",
              "the system refused them a private mapping (", message_of(parted),
              "); stop the engines, or start another sender for them, before the next step"));
}

absl::Status Publisher::check_none_registered() const {
  if (!registration_) return absl::OkStatus();
  return failed_precondition(
      "register_model: a model is registered already; each model needs its own sender and endpoint");
}

absl::Status Publisher::check_unsharded(std::string_view call) const {
  if (!crew_) return absl::OkStatus();
  return failed_precondition(call, ": this sender has ", crew_->ranks(), " ranks, which send shards; use ",
                             "register_shards(), send({.step = n}), send_async({.step = n}) and wait_async()");
}

absl::Status Publisher::register_shards(std::unique_ptr<ShardSource> source, std::string description,
                                        absl::Duration timeout) {
  BASCULE_TRY(check_none_registered());
  BASCULE_TRY(check_takes_ranks(*scheme_, endpoint_));
  if (!crew_) crew_ = std::make_unique<Crew>(1, *scheme_, endpoint_.timeout);
  return crew_->meet(std::move(source), description, Deadline(timeout), [&]() -> absl::Status {
    BASCULE_ASSIGN(Registration made, Registration::of_specs(crew_->held().specs(), crew_->held().device(),
                                                             endpoint_.wire_dtype, description, crew_->division()));
    return use(std::move(made), nullptr);
  });
}

absl::Status Publisher::register_model(std::unique_ptr<TensorSource> source, std::string description) {
  BASCULE_TRY(check_unsharded("register_model"));
  BASCULE_TRY(check_none_registered());
  BASCULE_ASSIGN(Registration made,
                 Registration::make(std::move(source), endpoint_.wire_dtype, std::move(description)));
  return use(std::move(made));
}

absl::Status Publisher::register_model(std::vector<TensorSpec> specs, int device, std::string description) {
  BASCULE_TRY(check_unsharded("register_model"));
  BASCULE_TRY(check_none_registered());
  if (single_copy())
    return invalid_argument("slots=1: the parameters live in the slot; register the tensors, not only their specs");
  BASCULE_ASSIGN(Registration made,
                 Registration::of_specs(std::move(specs), device, endpoint_.wire_dtype, std::move(description)));
  return use(std::move(made));
}

absl::Status Publisher::use(Registration made) {
  if (single_copy() && made.casts())
    return invalid_argument("slots=1: the parameters live in the slot and cannot be cast on the way; leave wire_dtype ",
                            "out, or use slots=2");
  if (single_copy() && made.computes())
    return invalid_argument("slots=1: the parameters live in the slot and cannot be scaled or merged on the way; use ",
                            "slots=2");
  if (single_copy() && made.device() != kHost && !scheme_->on_device)
    return invalid_argument("slots=1: the parameters live in the slot; they lie on device ", made.device(), ", and ",
                            scheme_->name, " keeps its slots in host memory; use slots=2, or ",
                            names_of_schemes(/*on_device=*/true));
  if (single_copy()) BASCULE_TRY(made.check_apart());
  BASCULE_ASSIGN(std::unique_ptr<Packer> packer, Packer::choose(*scheme_, made.device(), pool_));
  if (packer->enqueues() && made.has_tensors()) {
    BASCULE_ASSIGN(const Packing first, made.packing());
    // Ignores that the stream is being captured: the capture will have ended by the first send.
    if (absl::Status checked = packer->check(first); !checked.ok() && !absl::IsFailedPrecondition(checked))
      return annotate(checked, "register_model");
  }
  return use(std::move(made), std::move(packer));
}

// Without a packer, the ranks pack together.
absl::Status Publisher::use(Registration made, std::unique_ptr<Packer> packer) {
  registration_ = std::move(made);
  packer_ = packer ? std::move(packer) : make_crew_packer(*crew_, registration_->shared_layout(), pool_);
  if (packer_->enqueues()) {
    const absl::Status started = starting_threads("register_model", [this] {
      sealer_.emplace();
      return absl::OkStatus();
    });
    if (!started.ok()) registration_.reset();
    BASCULE_TRY(started);
    sealer_->submit(own_thread_of_devices);
  }
  absl::Status fits = encode_layout();
  if (fits.ok()) fits = slots_->transport().check(registration_->layout());
  if (!fits.ok()) {
    registration_.reset();
    return annotate(fits, "register_model");
  }
  coordinator_->register_layout(registration_->shared_layout(), encoded_layout_);
  if (!single_copy()) return absl::OkStatus();
  moved_ = open_slots();
  // Now the trainer's parameters are the slot, and keep it alive.
  const SlotId slot{coordinator_->epoch(), 0};
  if (moved_.ok()) moved_ = registration_->move_into(slots_->places(slot), slots_->set());
  return moved_;
}

absl::Status Publisher::expect(ExpectedWorkers workers) {
  BASCULE_TRY(check(workers));
  coordinator_->expect(std::move(workers));
  return absl::OkStatus();
}

absl::StatusOr<Publisher::WorkerNames> Publisher::wait_for_workers(int count, absl::Duration timeout) {
  if (count < 0) return invalid_argument("wait_for_workers: expected a count of 0 or more, found ", count);
  if (!registration_) return failed_precondition("wait_for_workers: call register_model first; workers wait for it");
  return coordinator_->wait_for_workers(count, Deadline(timeout));
}

// ---- slots ----

// One message lists all tensors for the workers; it is encoded once.
absl::Status Publisher::encode_layout() {
  constexpr std::size_t kRoom = kMaxFrameBytes - (1u << 20);  // besides the rest of a welcome
  const Layout& layout = registration_->layout();
  encoded_layout_ = encode(layout);
  if (encoded_layout_->size() <= kRoom) return absl::OkStatus();
  return invalid_argument("the names, types and shapes of ", layout.tensors().size(), " tensors take ",
                          encoded_layout_->size(), " bytes, and no worker can be told of more than ", kRoom,
                          "; give fewer tensors (join small ones), or shorter names");
}

// Slots are made at the first publication, and offered to the workers that have joined.
absl::Status Publisher::open_slots(const SlotHandle* adopted) {
  if (slots_->is_open()) return absl::OkStatus();
  if (const auto requests = coordinator_->fused_requests(); !requests.empty() && adopted == nullptr) {
    BASCULE_TRY(registration_->fuse(requests));
    BASCULE_TRY(encode_layout());
  }
  BASCULE_ASSIGN(std::vector<OfferedSlot> offered,
                 slots_->open(registration_->shared_layout(), registration_->device(), *packer_, adopted));
  coordinator_->open_slots(std::move(offered), registration_->shared_layout(), encoded_layout_, slots_->control_page());
  return absl::OkStatus();
}

// ---- a version that never changes ----

absl::StatusOr<SendReport> Publisher::adopt(const HeldVersion& version) {
  if (!endpoint_.held) return failed_precondition("adopt: this sender sends versions that change; set held");
  if (!version.handle) return invalid_argument("adopt: the version's memory cannot be handed on");
  BASCULE_TRY(check_none_registered());
  BASCULE_TRY(use(Registration::of_layout(version.layout, version.device)));
  BASCULE_TRY(open_slots(version.handle.get()));
  const Clock::time_point called = Clock::now();
  const Limit limit = Limit::timeout(endpoint_, called);
  BASCULE_ASSIGN(const Publication publication, begin({}, called, limit, /*packed=*/false));
  pending_ = Pending::kSend;
  seal(publication, version.digest, limit);
  return settled();
}

absl::StatusOr<HeldVersion> Publisher::held() const {
  if (!endpoint_.held || published_.version == 0)
    return failed_precondition("held: expected a sender that has published a version that never changes");
  const SlotId slot{coordinator_->epoch(), 0};
  HeldVersion version{.epoch = slot.epoch,
                      .version = published_.version,
                      .layout = registration_->layout(),
                      .digest = published_.digest};
  const SlotMemory& memory = slots_->memory(slot);
  version.device = memory.device;
  version.bytes = {memory.data(), memory.bytes};
  version.memory = memory.device == kHost ? memory.mapping.keep() : memory.device_memory;
  BASCULE_ASSIGN(version.handle, slots_->handle_of(slot));
  return version;
}

// ---- loans ----

absl::StatusOr<Publication> Publisher::lend(const WorkerNames& workers) {
  BASCULE_TRY(check_unsharded("loan()"));
  BASCULE_TRY(check_free("loan()"));
  if (!moved_.ok())
    return failed_precondition("loan(): register_model did not move the parameters into the slot: ", message_of(moved_),
                               "; make a new sender");
  const Clock::time_point called = Clock::now();
  BASCULE_ASSIGN(const Publication publication,
                 begin(workers, called, Limit::timeout(endpoint_, called), /*packed=*/false));
  loaned_ = true;
  return publication;
}

absl::StatusOr<SendReport> Publisher::publish(const Publication& publication) {
  loaned_ = false;
  pending_ = Pending::kSend;
  const absl::Status stayed = caught([&] {
    absl::Status in_time = single_copy() ? coordinator_->end_loan(publication.version) : absl::OkStatus();
    return single_copy() && in_time.ok() ? registration_->check_moved() : in_time;
  });
  if (!stayed.ok()) {
    sealed_version_ = publication.version;
    coordinator_->abandon(publication.version, stayed, /*torn=*/true);
    return settled();
  }
  const Clock::time_point start = Clock::now();
  const Limit limit = Limit::timeout(endpoint_, start);
  std::optional<Digest> digest;
  const absl::Status digested = caught([&]() -> absl::Status {
    auto made = digest_of(publication.slot, endpoint_.digest != DigestMode::kOff, limit.deadline());
    BASCULE_TRY(annotate(made.status(), cat("publish version ", publication.version)));
    digest = *made;
    return absl::OkStatus();
  });
  measured_.pack = seconds_between(start, Clock::now());
  if (digested.ok()) {
    seal(publication, digest, limit);
  } else {
    sealed_version_ = publication.version;
    coordinator_->abandon(publication.version, digested, single_copy());
  }
  return settled();
}

// Ends a dropped loan. If no byte of a single copy was changed, it still holds the old version, and engines serve that
// again, even those that were let go meanwhile.
void Publisher::take_back(const Publication& publication) {
  loaned_ = false;
  bool torn = single_copy();
  absl::Status why = out_of_memory();
  static_cast<void>(caught([&] {
    if (torn) coordinator_->end_loan(publication.version).IgnoreError();
    why = absl::AbortedError("the loan was dropped");
    if (!torn || !published_.digest) return;
    const auto digest = digest_of(publication.slot, true, Deadline(endpoint_.timeout));
    torn = !digest.ok() || *digest != published_.digest;
  }));
  if (single_copy() && !torn) slots_->seal_again(publication.slot, published_.version, published_.digest);
  coordinator_->abandon(publication.version, std::move(why), torn);
}

}  // namespace bascule::inline v0
