#!/usr/bin/env python3
"""Plants bugs in a copy of the tree, one after the other, and runs the tests of etcd that must find each.

    tests/cluster/planted.py [NAME]          NAME: bugs whose name or test has it

A bug is a piece of code that is there exactly once and what stands in its place; whoever changes that code changes it here as
well. A test that hangs has found the bug, too. The copy and its build stay in build/planted. Prints a TAP line for each bug.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planting  # noqa: E402

COPY = os.path.join(planting.ROOT, "build", "planted")
HANGS_S = 60

# test, name, file, the code, the bug
BUGS = [
    ("lost_answers", "libcurl_sends_a_txn_twice", "engine/cluster/etcd_request.c",
     "attempt->sent == 0 ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL",
     "attempt->sent < SIZE_MAX ? (((struct attempt *)user)->sent = 0, CURL_SEEKFUNC_OK) : CURL_SEEKFUNC_FAIL"),
    ("lost_answers", "a_txn_goes_to_the_next_endpoint", "engine/cluster/etcd_request.c",
     "if (!failure->is_proof && !call->is_read)", "if (false && !call->is_read)"),
    ("no_space", "no_space_is_proof", "engine/cluster/etcd_errors.c",
     "exceeded\", ETCD_NO_SPACE, false}", "exceeded\", ETCD_NO_SPACE, true}"),
    ("what_is_no_etcd", "answers_without_bound", "engine/cluster/etcd_request.c",
     "if (length > ETCD_ANSWER_BYTES_MAX - attempt->answer.length)",
     "if (length > SIZE_MAX / 2)"),
    ("what_is_no_etcd", "a_txn_without_responses_is_done", "engine/cluster/etcd_json.c",
     "if (!json_is_object(inner))", "if (i > 9)"),
    ("what_is_no_etcd", "numbers_without_end", "engine/cluster/etcd_json.c",
     "return text != NULL && errno == 0;\n}\n\nbool etcd_uint",
     "return text != NULL;\n}\n\nbool etcd_uint"),
    ("secured", "a_token_is_asked_for_once", "engine/cluster/etcd_request.c",
     "is_new_token = true;\n            etcd_forget_token(etcd);",
     "is_new_token = true;"),
    ("secured", "the_systems_authorities", "engine/cluster/etcd_request.c",
     "if (etcd->authority != NULL) {\n        curl_easy_setopt(curl, CURLOPT_CAINFO, etcd->authority);",
     "if (etcd->authority != NULL) {\n        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);"),
    ("keys", "the_second_page_is_the_first", "engine/cluster/etcd_operations.c",
     "from = (struct str){next, last.length + 1};", "from = range->key;"),
    ("txns", "which_compare", "engine/cluster/etcd_json.c", "out->compare = i;", "out->compare = 0;"),
    ("leases", "a_lease_without_time_lives", "engine/cluster/etcd_operations.c",
     "return answer->ttl_s > 0 ? ETCD_DONE :", "return answer->ttl_s >= -1 ? ETCD_DONE :"),
    ("a_watch_is_cut", "an_event_comes_twice", "engine/cluster/etcd_watch.c",
     "watch->next = MAX(watch->next, changes->revision + 1);",
     "watch->next = MAX(watch->next, changes->revision);"),
    ("watch", "compacted_is_lost", "engine/cluster/etcd_json.c",
     "if (is_cancelled && compacted > 0)", "if (is_cancelled && compacted < 0)"),
    ("watch_is_bounded", "what_was_taken_stays", "engine/cluster/etcd_watch.c", "if (watch->begin > 0) {",
     "if (watch->begin > SIZE_MAX / 2) {"),
    ("three_members", "a_member_alone_is_waited_for", "engine/cluster/etcd_request.c",
     "if (!is_local)\n        add_field", "if (!is_local && path == NULL)\n        add_field"),
    ("a_leader_dies", "the_lease_has_no_clock", "engine/cluster/coordination_lease.c",
     "sent_us + ttl_us - ttl_us / 10)", "sent_us + ttl_us * 1000)"),
    ("a_leader_dies", "gone_is_not_seen", "engine/cluster/coordination_lease.c",
     "else if (answer.error == ETCD_NO_LEASE)", "else if (answer.error == ETCD_OTHER)"),
    ("interleavings", "no_election_key", "engine/cluster/coordination_lead.c",
     "{.key = write->own, .target = ETCD_CREATE_REVISION, .number = write->coordination->leading}",
     "{.key = write->own, .target = ETCD_CREATE_REVISION, .relation = ETCD_NOT_EQUAL, .number = -1}"),
    ("a_step_is_stopped", "a_leader_goes_on_behind_a_stop", "engine/cluster/coordination_lead.c",
     " || etcd_is_stopped(write->coordination->etcd)", ""),
    ("lost_answers", "no_previous_head", "engine/cluster/coordination_lead.c",
     "{.key = write->key, .target = ETCD_MOD_REVISION, .number = write->record->revision}",
     "{.key = write->key, .target = ETCD_MOD_REVISION, .relation = ETCD_NOT_EQUAL, .number = -1}"),
    ("lost_answers", "refused_without_looking", "engine/cluster/coordination_lead.c",
     "if (write->record->doubt != NULL) {\n        enum", "if (false) {\n        enum"),
    ("lost_answers", "old_is_the_last_word", "engine/cluster/coordination_lead.c",
     "*is_over = outcome != ETCD_UNKNOWN;\n    return outcome;",
     "*is_over = true;\n    return is_old ? ETCD_REFUSED : outcome;"),
    ("lost_answers", "another_write_beside_one_in_doubt", "engine/cluster/coordination_lead.c",
     "if (record->doubt != NULL && !str_equal(", "if (record->doubt != NULL && record->doubt[0] == 0 && !str_equal("),
    ("lost_answers", "reading_moves_what_is_in_doubt", "engine/cluster/coordination.c",
     "if (coordination->records[which].doubt == NULL)\n", "if (which < RECORD_COUNT)\n"),
    ("many_heads", "no_compaction", "engine/cluster/coordination_lead.c",
     "if (++coordination->heads < coordination->compact_every)", "if (++coordination->heads < 1000000)"),
    ("data_lost", "revisions_may_go_back", "engine/cluster/coordination.c",
     "if (answer->revision < coordination->revision)", "if (answer->revision < 0)"),
    ("data_lost", "the_job_may_be_gone", "engine/cluster/coordination.c",
     "if (coordination->job_since != 0 && !view->has_job)", "if (coordination->job_since < 0 && !view->has_job)"),
    ("data_lost", "a_lost_record_is_made_anew", "engine/cluster/coordination_join.c",
     "has_history || coordination->job_since != 0", "has_history && coordination->job_since < 0"),
    ("two_jobs", "another_profile_joins", "engine/cluster/coordination_join.c",
     "if (!str_equal(there.profile, job->profile))", "if (there.profile.length == SIZE_MAX)"),
    ("leader_writes", "the_last_candidate_leads", "engine/cluster/etcd_operations.c",
     'json_string("ASCEND")', 'json_string("DESCEND")'),
]


def is_found(test):
    """Whether one of the tests of that name failed, and the last that was said."""
    tool = os.path.join(COPY, "build", "release", "tests", "cluster", "etcd_tool")
    script = os.path.join(COPY, "tests", "cluster", "test_etcd.py")
    text = planting.read(script).decode()
    names = [line[4:].split("(")[0] for line in text.split("\n") if line.startswith(f"def test_{test}")]
    assert names, test
    try:
        result = subprocess.run([sys.executable, script, tool, names[0]], cwd=COPY, capture_output=True, text=True, check=False,
                                timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return True, "it hangs"
    return result.returncode == 1, result.stdout.strip().split("\n")[-2:][0][:110]


def main():
    status = 0
    planting.make_copy(COPY)
    for test, name, path, code, bug in BUGS:
        if not any(word in test or word in name for word in sys.argv[1:] or [""]):
            continue
        with planting.planted(COPY, path, code, bug) as times:
            wrong = planting.build(COPY, "release", "etcd_tool") if times == 1 else f"its code is {times} times in {path}"
            found, said = (False, wrong) if wrong else is_found(test)
        status |= not found
        print(f"{'ok' if found else 'not ok'} - planted: {test}: {name}: {said}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
