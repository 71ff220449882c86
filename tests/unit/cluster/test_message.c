/* Messages of links and proofs: what is sealed opens, nothing else does, and each refusal is the right one. */
#include "../core/cmocka_all.h"
#include "cluster/message.h"

static const char body[] = "rows of a micro-batch";

static struct message_head frame_head(void)
{
    struct message_head head = {.kind = MESSAGE_FRAME,
                                .from = 3,
                                .incarnation = 5,
                                .session = 99,
                                .sequence = 1,
                                .length = 2 * sizeof(body),
                                .offset = sizeof(body)};
    message_seal(&head, body, sizeof(body));
    return head;
}

static enum message_refusal open_sealed(struct message_head head, size_t bytes)
{
    struct message_head found;
    message_seal(&head, body, bytes);
    return message_open(&head, sizeof(head), body, bytes, &found);
}

static void test_a_frame(void **state)
{
    (void)state;
    struct message_head head = frame_head(), found;
    assert_int_equal(message_open(&head, sizeof(head), body, sizeof(body), &found), REFUSED_NOT);
    assert_memory_equal(&head, &found, sizeof(head));
    for (size_t length = 0; length < sizeof(head); length++)
        assert_int_equal(message_open(&head, length, body, sizeof(body), &found), REFUSED_DAMAGED);
    for (size_t length = 0; length < sizeof(body); length++)
        assert_int_equal(message_open(&head, sizeof(head), body, length, &found), REFUSED_DAMAGED);
}

static void test_each_bit_counts(void **state)
{
    (void)state;
    struct message_head head = frame_head(), found;
    char copy[sizeof(body)];
    memcpy(copy, body, sizeof(body));
    for (size_t bit = 0; bit < 8 * sizeof(head); bit++) {
        uint8_t *byte = (uint8_t *)&head + bit / 8;
        *byte ^= (uint8_t)(1 << bit % 8);
        enum message_refusal refusal = message_open(&head, sizeof(head), body, sizeof(body), &found);
        bool is_version = bit / 8 == offsetof(struct message_head, version);
        assert_int_equal(refusal, is_version ? REFUSED_VERSION : REFUSED_DAMAGED);
        *byte ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * sizeof(body); bit++) {
        copy[bit / 8] = (char)(copy[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(message_open(&head, sizeof(head), copy, sizeof(body), &found), REFUSED_DAMAGED);
        copy[bit / 8] = (char)(copy[bit / 8] ^ 1 << bit % 8);
    }
}

/* The digest is right, and what it covers is out of bounds. */
static void test_bounds(void **state)
{
    (void)state;
    const struct message_head good = frame_head();
    struct message_head head = good;
    assert_int_equal(open_sealed(good, sizeof(body)), REFUSED_NOT);
    head.length = MESSAGE_FRAME_MAX + 1;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head = good;
    head.offset = sizeof(body) + 1;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head.offset = UINT32_MAX;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head = good;
    assert_int_equal(open_sealed(head, 0), REFUSED_DAMAGED); /* a piece without bytes would never end */
    head.sequence = 0;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head = good;
    head.from = MESSAGE_WORKER_MAX + 1;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head = good;
    head.kind = MESSAGE_KINDS;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head.kind = 0;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head.kind = MESSAGE_STATUS; /* of another size */
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    head.kind = MESSAGE_PING;
    assert_int_equal(open_sealed(head, sizeof(body)), REFUSED_DAMAGED);
    assert_int_equal(open_sealed(head, 0), REFUSED_NOT);
    head = (struct message_head){.kind = MESSAGE_FRAME, .sequence = 1};
    assert_int_equal(open_sealed(head, 0), REFUSED_NOT); /* a frame without bytes */
}

static void test_refusals_have_texts(void **state)
{
    (void)state;
    for (int refusal = 0; refusal < REFUSED_COUNT; refusal++)
        assert_non_null(message_refusal_text((enum message_refusal)refusal));
    assert_non_null(message_refusal_text(REFUSED_COUNT));
    assert_non_null(message_refusal_text((enum message_refusal) - 1));
}

static void test_proofs(void **state)
{
    (void)state;
    struct str secret = STR("a secret of the incarnation");
    struct proof_case proven = {.incarnation = 5, .dialer = 1, .listener = 2};
    uint8_t proof[PROOF_BYTES], other[PROOF_BYTES];
    proof_nonce(proven.dialer_nonce);
    proof_nonce(proven.listener_nonce);
    assert_memory_not_equal(proven.dialer_nonce, proven.listener_nonce, PROOF_NONCE);
    proof_make(secret, PROOF_DIALER, &proven, proof);
    assert_true(proof_is_right(secret, PROOF_DIALER, &proven, proof));
    assert_false(proof_is_right(secret, PROOF_LISTENER, &proven, proof)); /* reflected */
    assert_false(proof_is_right(STR("another secret of the incarnation"), PROOF_DIALER, &proven, proof));
    for (size_t i = 0; i < sizeof(proven); i++) { /* each byte of what is proven counts */
        ((uint8_t *)&proven)[i] ^= 1;
        assert_false(proof_is_right(secret, PROOF_DIALER, &proven, proof));
        ((uint8_t *)&proven)[i] ^= 1;
    }
    for (size_t i = 0; i < PROOF_BYTES; i++) {
        memcpy(other, proof, PROOF_BYTES);
        other[i] ^= 0x80;
        assert_false(proof_is_right(secret, PROOF_DIALER, &proven, other));
    }
    uint64_t session = proof_session(secret, &proven);
    proven.listener_nonce[0] ^= 1;
    assert_true(session != 0 && session != proof_session(secret, &proven));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_frame), cmocka_unit_test(test_each_bit_counts),
        cmocka_unit_test(test_bounds),  cmocka_unit_test(test_refusals_have_texts),
        cmocka_unit_test(test_proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
