#include "sender/sender.h"

#include <algorithm>
#include <utility>

#include "kernels/digest.h"
#include "kernels/pack.h"
#include "kernels/thread_pool.h"
#include "schemes/registry.h"
#include "sender/coordinator.h"
#include "sender/endpoint_lock.h"
#include "sender/registration.h"
#include "transport/control_page.h"
#include "transport/endpoint.h"
#include "transport/posix/private_folder.h"
#include "transport/scheme.h"
#include "transport/text.h"

namespace bascule {
namespace {

// What a loan shares with its sender: it stays mapped until both are gone.
struct SlotSet {
  Layout layout;
  std::vector<SlotMemory> memory;  // by slot index
};

}  // namespace

struct Sender::Impl {
  Endpoint endpoint;
  const Scheme* scheme = nullptr;
  kernels::ThreadPool pool;
  std::optional<Registration> registration;
  std::optional<ControlPage> control_page;
  std::shared_ptr<SlotSet> slots;            // none before the first publication
  std::unique_ptr<Coordinator> coordinator;  // after the memory that its members were offered

  bool loaned = false;
  bool pending = false;   // sealed, report not yet fetched
  StageSeconds measured;  // wait and pack of the version under way
  std::optional<Digest> last_digest;
  Version last_version = 0;
  std::vector<std::string> warnings;

  explicit Impl(int threads) : pool(threads) {}

  absl::Status open_slots();
  absl::StatusOr<Publication> begin(Deadline deadline);
  absl::Status pack_and_seal(Deadline deadline);
  void seal(const Publication& publication, std::optional<Digest> digest, Deadline deadline);
  absl::StatusOr<SendReport> settled(Deadline deadline);
  Deadline settles_by() const { return Deadline(endpoint.timeout + endpoint.flip_timeout + endpoint.suspect_after); }
};

struct WritableSlot::Loan {
  std::weak_ptr<Sender::Impl> sender;
  std::shared_ptr<SlotSet> slots;
  Publication publication;
  std::vector<MutableTensorView> tensors;
};

Sender::Sender(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sender::Sender(Sender&&) noexcept = default;
Sender& Sender::operator=(Sender&&) noexcept = default;
Sender::~Sender() = default;

absl::StatusOr<Sender> Sender::listen(SenderOptions options) {
  auto impl = std::make_shared<Impl>(options.threads);
  BASCULE_ASSIGN(impl->endpoint, Endpoint::parse(options.endpoint));
  if (options.scheme != nullptr) {
    impl->scheme = options.scheme;
  } else {
    BASCULE_ASSIGN(impl->scheme, find_scheme(impl->endpoint.scheme));
  }
  BASCULE_TRY(make_private_folder(impl->endpoint.folder));
  BASCULE_ASSIGN(EndpointLock lock, EndpointLock::take(impl->endpoint.lock_file()));
  BASCULE_ASSIGN(impl->control_page, ControlPage::make(lock.epoch()));
  BASCULE_ASSIGN(impl->coordinator,
                 Coordinator::start(impl->endpoint, *impl->scheme, std::move(lock), std::move(options.log)));
  return Sender(std::move(impl));
}

absl::Status Sender::register_model(std::unique_ptr<TensorSource> source) {
  if (impl_->registration)
    return failed_precondition("register_model: a model is registered already; one sender and one path a model");
  BASCULE_ASSIGN(impl_->registration, Registration::make(std::move(source), impl_->endpoint.wire_dtype));
  impl_->coordinator->register_layout(impl_->registration->layout());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Sender::wait_for_workers(int count, absl::Duration timeout) {
  if (count < 0) return invalid_argument("wait_for_workers: expected a count of 0 or more, found ", count);
  if (!impl_->registration)
    return failed_precondition("wait_for_workers: call register_model first; workers wait for it");
  return impl_->coordinator->wait_for_workers(count, Deadline(timeout));
}

// Slots are made at the first publication, and offered to whoever is there.
absl::Status Sender::Impl::open_slots() {
  if (slots) return absl::OkStatus();
  auto made = std::make_shared<SlotSet>();
  made->layout = registration->layout();
  std::vector<OfferedSlot> offered;
  for (int i = 0; i < endpoint.slots; ++i) {
    BASCULE_ASSIGN(SlotMemory memory, scheme->make_slot(made->layout.bytes()));
    made->memory.push_back(std::move(memory));
  }
  for (std::uint32_t i = 0; i < made->memory.size(); ++i)
    offered.push_back({.id = {coordinator->epoch(), i}, .memory = &made->memory[i]});
  slots = std::move(made);
  coordinator->open_slots(std::move(offered), control_page->descriptor());
  return absl::OkStatus();
}

absl::StatusOr<Publication> Sender::Impl::begin(Deadline deadline) {
  if (!registration) return failed_precondition("no model is registered; call register_model first");
  if (loaned) return failed_precondition("a loan is out; publish it or drop it first");
  BASCULE_TRY(open_slots());
  measured = {};
  const Clock::time_point start = Clock::now();
  BASCULE_ASSIGN(Publication publication, coordinator->begin(deadline));
  measured.wait = seconds_between(start, Clock::now());
  control_page->begin(publication.slot.index);
  return publication;
}

void Sender::Impl::seal(const Publication& publication, std::optional<Digest> digest, Deadline deadline) {
  warnings.clear();
  if (digest && last_digest == digest)
    warnings.push_back(cat("version ", publication.version, " has the same bytes as version ", last_version,
                           ": the weights did not change between the two sends"));
  last_digest = digest;
  last_version = publication.version;
  control_page->seal(publication.slot.index, publication.version, publication.bytes, digest);
  coordinator->seal(publication.version, digest, deadline);
}

absl::Status Sender::Impl::pack_and_seal(Deadline deadline) {
  if (!registration) return failed_precondition("no model is registered; call register_model first");
  BASCULE_TRY(registration->refresh());
  BASCULE_ASSIGN(const Publication publication, begin(deadline));
  const Clock::time_point start = Clock::now();
  const std::optional<Digest> digest = kernels::pack(
      registration->segments(), registration->addresses(), slots->memory[publication.slot.index].writable(),
      endpoint.digest != DigestMode::kOff, pool, &control_page->bytes_done(publication.slot.index));
  measured.pack = seconds_between(start, Clock::now());
  seal(publication, digest, deadline);
  pending = true;
  return absl::OkStatus();
}

absl::StatusOr<SendReport> Sender::Impl::settled(Deadline deadline) {
  std::optional<absl::StatusOr<SendReport>> done = coordinator->wait_settled(deadline);
  if (!done) return deadline_exceeded("the send has not settled yet; it stays pending");
  pending = false;
  absl::StatusOr<SendReport> report = *std::move(done);
  if (!report.ok()) return report;
  report->seconds.wait = measured.wait;
  report->seconds.pack = measured.pack;
  report->memory = slots->memory.front().description;
  report->warnings = warnings;
  return report;
}

absl::StatusOr<SendReport> Sender::send() {
  if (impl_->pending)
    return failed_precondition("Cannot call send() while a previous send is pending. Call wait_async() first.");
  BASCULE_TRY(impl_->pack_and_seal(Deadline(impl_->endpoint.timeout)));
  return impl_->settled(impl_->settles_by());
}

absl::StatusOr<SendReport> Sender::send(std::unique_ptr<TensorSource> weights,
                                        const std::vector<std::string>& worker_ids) {
  if (weights) return unimplemented("send: other weights than the registered ones are not in this version; send none");
  if (!worker_ids.empty())
    return unimplemented("send: sends to some of the workers are not in this version; name none, and all are served");
  return send();
}

absl::Status Sender::update_weights(std::unique_ptr<TensorSource>) {
  return unimplemented("update_weights is not in this version; use send_async() and wait_async()");
}

absl::Status Sender::send_async() {
  if (impl_->pending)
    return failed_precondition(
        "Cannot call send_async() again while a previous send is pending. Call wait_async() first.");
  return impl_->pack_and_seal(Deadline(impl_->endpoint.timeout));
}

absl::StatusOr<SendReport> Sender::wait_async(absl::Duration timeout) {
  if (!impl_->pending) return failed_precondition("No async send is pending. Call send_async() first.");
  return impl_->settled(Deadline(timeout));
}

absl::StatusOr<WritableSlot> Sender::loan() {
  if (impl_->pending)
    return failed_precondition("Cannot call loan() while a previous send is pending. Call wait_async() first.");
  BASCULE_ASSIGN(const Publication publication, impl_->begin(Deadline(impl_->endpoint.timeout)));
  auto loan = std::make_unique<WritableSlot::Loan>();
  loan->sender = impl_;
  loan->slots = impl_->slots;
  loan->publication = publication;
  std::byte* const base = impl_->slots->memory[publication.slot.index].writable().data();
  for (const Placement& tensor : impl_->slots->layout.tensors())
    loan->tensors.push_back({.name = tensor.spec.name,
                             .dtype = tensor.spec.dtype,
                             .shape = tensor.spec.shape,
                             .data = base + tensor.offset});
  impl_->loaned = true;
  return WritableSlot(std::move(loan));
}

absl::StatusOr<SendReport> Sender::publish(WritableSlot slot) {
  if (!slot.loan_ || slot.loan_->sender.lock() != impl_)
    return invalid_argument("publish: the slot is not on loan from this sender");
  const Publication publication = slot.loan_->publication;
  slot.loan_.reset();  // published: its destructor aborts nothing
  impl_->loaned = false;
  const Clock::time_point start = Clock::now();
  std::optional<Digest> digest;
  if (impl_->endpoint.digest != DigestMode::kOff)
    digest = kernels::digest(impl_->slots->memory[publication.slot.index].writable(), impl_->pool);
  impl_->measured.pack = seconds_between(start, Clock::now());
  impl_->seal(publication, digest, Deadline(impl_->endpoint.timeout));
  impl_->pending = true;
  return impl_->settled(impl_->settles_by());
}

Version Sender::version() const { return impl_->coordinator->version(); }

WritableSlot::WritableSlot(std::unique_ptr<Loan> loan) : loan_(std::move(loan)) {}
WritableSlot::WritableSlot(WritableSlot&&) noexcept = default;
WritableSlot& WritableSlot::operator=(WritableSlot&& other) noexcept {
  std::swap(loan_, other.loan_);  // what this one held is aborted with `other`
  return *this;
}

WritableSlot::~WritableSlot() {
  if (!loan_) return;
  const std::shared_ptr<Sender::Impl> sender = loan_->sender.lock();
  if (!sender) return;
  sender->loaned = false;
  sender->coordinator->abandon(loan_->publication.version, absl::AbortedError("the loan was dropped"));
}

Version WritableSlot::version() const { return loan_->publication.version; }
std::span<const MutableTensorView> WritableSlot::tensors() const { return loan_->tensors; }

const MutableTensorView* WritableSlot::find(std::string_view name) const {
  const auto found = std::ranges::find(loan_->tensors, name, &MutableTensorView::name);
  return found == loan_->tensors.end() ? nullptr : &*found;
}

}  // namespace bascule
