#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/fwd.hpp>
#include <caf/replies_to.hpp>
#include <caf/timespan.hpp>

#include "actors/lease_ticket.hpp"

/// The messages that each actor takes, and nothing else: this header is all that one actor knows of another.
///
/// The path of a use (front → supervisor → environment → lease → session and back) is one-way messages that carry a
/// ticket: a request's timeout would cost more than the use. What waits there has its deadline in the environment actor.
/// Everything else is a request with a named timeout and an error handler.
namespace holt::actors {

// Small values, defined in messages.hpp. They never cross a network.
struct use_call;
struct lifecycle_call;
struct activity_call;
struct session_use;
struct session_opened;
struct session_ended;
struct operation_end;
struct provider_call;
struct provider_answer;
struct provider_outcome;
struct blocking_job;
struct loaded_environment;
struct instance_write;
struct seen_swap;
struct instance_page;
struct instance_query;
struct finished_operation;
struct reports;

using acquire_atom = caf::atom_constant<caf::atom("acquire")>;
using release_atom = caf::atom_constant<caf::atom("release")>;
using granted_atom = caf::atom_constant<caf::atom("granted")>;
using refused_atom = caf::atom_constant<caf::atom("refused")>;
using use_atom = caf::atom_constant<caf::atom("use")>;
using cancel_atom = caf::atom_constant<caf::atom("cancel")>;
using detach_atom = caf::atom_constant<caf::atom("detach")>;
using change_atom = caf::atom_constant<caf::atom("change")>;
using activity_atom = caf::atom_constant<caf::atom("activity")>;
using idle_atom = caf::atom_constant<caf::atom("idle")>;
using leave_atom = caf::atom_constant<caf::atom("leave")>;
using opened_atom = caf::atom_constant<caf::atom("opened")>;
using ended_atom = caf::atom_constant<caf::atom("ended")>;
using accepted_atom = caf::atom_constant<caf::atom("accepted")>;
using result_atom = caf::atom_constant<caf::atom("result")>;
using control_atom = caf::atom_constant<caf::atom("control")>;
using closed_atom = caf::atom_constant<caf::atom("closed")>;
using close_atom = caf::atom_constant<caf::atom("close")>;
using wake_atom = caf::atom_constant<caf::atom("wake")>;
using every_atom = caf::atom_constant<caf::atom("every")>;
using job_atom = caf::atom_constant<caf::atom("job")>;
using call_atom = caf::atom_constant<caf::atom("call")>;
using outcome_atom = caf::atom_constant<caf::atom("outcome")>;
using report_atom = caf::atom_constant<caf::atom("report")>;
using run_atom = caf::atom_constant<caf::atom("run")>;
using load_atom = caf::atom_constant<caf::atom("load")>;
using write_atom = caf::atom_constant<caf::atom("write")>;
using epoch_atom = caf::atom_constant<caf::atom("epoch")>;
using seen_atom = caf::atom_constant<caf::atom("seen")>;
using purge_atom = caf::atom_constant<caf::atom("purge")>;
using finish_atom = caf::atom_constant<caf::atom("finish")>;
using list_atom = caf::atom_constant<caf::atom("list")>;
using origin_atom = caf::atom_constant<caf::atom("origin")>;
using settled_atom = caf::atom_constant<caf::atom("settled")>;

// -- lease ---------------------------------------------------------------------------------------------------------------

/// What a lease tells the user that asked. Each acquire is answered by exactly one of the two.
using lease_user_actor = caf::typed_actor<
    // From the lease: it is yours until you release it.
    caf::reacts_to<granted_atom, lease_ticket>,
    // From the lease: a code of ec. busy (queue full), conflict (ticket in use), cancelled (released while waiting),
    // lease_lost (the lease actor stopped).
    caf::reacts_to<refused_atom, lease_ticket, std::uint8_t>>;

/// Grants the leases of one environment.
using lease_actor = caf::typed_actor<
    // From a user, a lease_user_actor. The limits are those of this moment. A user that dies has released.
    caf::reacts_to<acquire_atom, lease_ticket, lease_mode, std::uint32_t, std::uint32_t>,
    // From the same user, holding or still waiting. Unknown tickets are ignored: the lease may have been lost meanwhile.
    caf::reacts_to<release_atom, lease_ticket>>;

// -- schedule ------------------------------------------------------------------------------------------------------------

/// Whoever asked the schedule for a wake-up.
using sleeper_actor = caf::typed_actor<
    // From the schedule, at or soon after the time asked for. Carries the generation of the asking: a stale one is ignored.
    caf::reacts_to<wake_atom, std::uint64_t>>;

/// Whoever has work to do again and again.
using worker_actor = caf::typed_actor<
    // From the schedule, each period: the job's name.
    caf::reacts_to<job_atom, std::string>>;

/// Keeps all deadlines of this replica in one index, and one timer.
using schedule_actor = caf::typed_actor<
    // From a sleeper: wake me at this time of the actor system's clock. Replaces what it asked for before.
    caf::reacts_to<wake_atom, caf::timespan, std::uint64_t>,
    // From the node: this worker's job of that name, each period. The first time after one period.
    caf::reacts_to<every_atom, std::string, caf::timespan, worker_actor>,
    // From itself: its timer, with the generation under which it was set.
    caf::reacts_to<run_atom, std::uint64_t>>;

// -- store ---------------------------------------------------------------------------------------------------------------

/// The bridge to the store: its callbacks become answers. Errors: not_found, lease_lost (fenced), store_unavailable,
/// internal.
using store_actor = caf::typed_actor<
    // An environment with its instance row, deleted or not.
    caf::replies_to<load_atom, std::string>::with<loaded_environment>,
    // A fenced write (spec 11); the row as stored comes back.
    caf::replies_to<write_atom, instance_write>::with<instance_write>,
    // The next epoch of an environment's session (spec 52).
    caf::replies_to<epoch_atom, std::string>::with<std::uint64_t>,
    // What a holder saw before (spec 18); "" the first time.
    caf::replies_to<seen_atom, seen_swap>::with<std::string>,
    // Rows of a deleted environment, with the generation of its instance row.
    caf::replies_to<purge_atom, std::string, std::uint64_t>::with<bool>,
    // The end of an operation that a client polls.
    caf::replies_to<finish_atom, finished_operation>::with<bool>,
    // One page of environments by the status of their instance.
    caf::replies_to<list_atom, instance_query>::with<instance_page>,
    // The incarnation of the database, within which epochs compare.
    caf::replies_to<origin_atom>::with<std::string>,
    // From the store's threads, through the bridge's own callbacks: the answer to the request of that number.
    caf::reacts_to<outcome_atom, std::uint64_t>>;

// -- providers -----------------------------------------------------------------------------------------------------------

/// Runs what blocks on a fixed number of threads, first come first served.
using blocking_pool_actor = caf::typed_actor<
    // From anyone. The job tells its end itself.
    caf::reacts_to<run_atom, blocking_job>,
    // From one of its threads: ready for the next.
    caf::reacts_to<idle_atom, std::uint32_t>>;

/// Calls one provider, some calls at once but never two for one environment.
using provider_actor = caf::typed_actor<
    // From an environment or a session. The outcome is a value, also when the provider refuses; errors are only
    // sandbox_unavailable (too many calls wait, or no answer in time) and stopping.
    caf::replies_to<call_atom, provider_call>::with<provider_answer>,
    // From the front.
    caf::replies_to<report_atom>::with<reports>,
    // From the pool: how the call of that number ended.
    caf::reacts_to<outcome_atom, std::uint64_t, provider_outcome>,
    // From the schedule: calls may be over time.
    caf::reacts_to<wake_atom, std::uint64_t>>;

// -- agent session -------------------------------------------------------------------------------------------------------

/// One connected agent: carries operations to it, and outlives its connections.
using agent_session_actor = caf::typed_actor<
    // From the environment: carry this operation. Ends in one `result` to the environment.
    caf::reacts_to<use_atom, session_use>,
    // From the environment: end the operation. Its own result follows.
    caf::reacts_to<cancel_atom, std::string>,
    // From the environment: take these streams off the operation (spec 43).
    caf::reacts_to<detach_atom, std::string, std::vector<std::uint32_t>>,
    // From the environment: close, and answer every operation with this code of ec.
    caf::reacts_to<close_atom, std::uint8_t>,
    // From the channel, with the number of the connection: one control message.
    caf::reacts_to<control_atom, std::uint64_t, std::string>,
    // From the channel: the connection of that number ended, and why.
    caf::reacts_to<closed_atom, std::uint64_t, std::string>,
    // From the schedule: a handshake is over time, or a reconnect is due.
    caf::reacts_to<wake_atom, std::uint64_t>>;

// -- environment ---------------------------------------------------------------------------------------------------------

/// One environment in use on this replica.
using environment_actor = caf::typed_actor<
    // From the supervisor. Answered through the call's own reply, exactly once, also when the actor dies.
    caf::reacts_to<use_atom, use_call>,
    // From the supervisor: end this operation; wherever it waits, it is answered.
    caf::reacts_to<cancel_atom, std::string>,
    // From the supervisor (spec 43).
    caf::reacts_to<detach_atom, std::string, std::vector<std::uint32_t>>,
    // From the supervisor: suspend, resume, reset, remove, and the sweeps. Answered through its own reply.
    caf::reacts_to<change_atom, lifecycle_call>,
    // From the supervisor. Answered through its own reply.
    caf::reacts_to<activity_atom, activity_call>,
    // From the supervisor: nobody needs you, go.
    caf::reacts_to<leave_atom>,
    // From the lease.
    caf::reacts_to<granted_atom, lease_ticket>,
    // From the lease.
    caf::reacts_to<refused_atom, lease_ticket, std::uint8_t>,
    // From the session: the agent is welcome, operations may go.
    caf::reacts_to<opened_atom, session_opened>,
    // From the session: it is over, and why. Every operation it had was answered before.
    caf::reacts_to<ended_atom, session_ended>,
    // From the session: the agent accepted this operation. Only for those that give their lease back then.
    caf::reacts_to<accepted_atom, lease_ticket>,
    // From the session: how the operation of this ticket ended.
    caf::reacts_to<result_atom, lease_ticket, operation_end>,
    // From the schedule.
    caf::reacts_to<wake_atom, std::uint64_t>>;

/// All environments in use on this replica.
using environment_supervisor_actor = caf::typed_actor<
    // From the front. Spawns the environment's actor if there is none.
    caf::reacts_to<use_atom, use_call>,
    // From the front: environment, operation.
    caf::reacts_to<cancel_atom, std::string, std::string>,
    // From the front: environment, operation, streams.
    caf::reacts_to<detach_atom, std::string, std::string, std::vector<std::uint32_t>>,
    // From the front and the sweeper.
    caf::reacts_to<change_atom, lifecycle_call>,
    // From the front.
    caf::reacts_to<activity_atom, activity_call>,
    // From an environment that nobody uses, with its id and the number of messages it took from here: may I go?
    caf::reacts_to<idle_atom, std::string, std::uint64_t>>;

/// Ends what nobody needs (spec 23–29), and what a crash left half done.
using sweeper_actor = caf::typed_actor<
    // From the schedule or the node: "settle", "suspend", "destroy", "remove".
    caf::reacts_to<job_atom, std::string>,
    // From itself, when one of the sweep's changes ended: environment, code of ec.
    caf::reacts_to<settled_atom, std::uint64_t, std::string, std::uint8_t>>;

} // namespace holt::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::use_call)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::lifecycle_call)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::activity_call)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::session_use)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::session_opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::session_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::operation_end)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::provider_call)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::provider_answer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::provider_outcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::blocking_job)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::loaded_environment)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::instance_write)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::seen_swap)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::instance_page)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::instance_query)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::finished_operation)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(holt::actors::reports)
