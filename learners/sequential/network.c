/*
 * The network of a model, on the CPU or on a GPU. On a GPU its weights, their optimizer's state, all activations and
 * gradients lie there; the rows of items and of what stands beside them, histories and losses stay on the CPU. A pass:
 *
 *   tokens' rows and the windows go up -> forward -> the outputs come down; the host waits
 *   losses on the CPU -> gradients by the outputs go up -> backward -> gradients by the tokens come down; it waits
 *
 * all by pinned memory that is taken once. A step's passes are those of a CPU, so both learn the same but for the order
 * in which a GPU sums gradients (learners/train/windows.h). Predictions go through the network there, too. Checkpoints
 * and cuts have the CPU's form (learners/stored), so that a model moves between devices; a model that only answers
 * requests is on the CPU.
 *
 * The first failure of the device is noted in s->error. From then on nothing is queued, and what is read is nothing.
 */
#include "learners/sequential/internal.h"

#include "kernels/num.h"

#include <stdlib.h>

static struct net_options network_of(const struct sequential_options *o)
{
    return (struct net_options){.network = o->network,
                                .own = o->network_own,
                                .fields = 1,
                                .dim = o->dim,
                                .optimizer = o->dense.kind,
                                .params = o->dense.params,
                                .accumulator = o->dense.accumulator,
                                .clip_norm = o->clip_norm,
                                .window_max = o->history,
                                .init = o->init_dense,
                                .recompute = o->recompute,
                                .both_ways = o->masked_share > 0.0,
                                .seed = num_mix(o->seed ^ 0x4e7)};
}

static bool is_on_gpu(const struct sequential *s)
{
    return s->options.device != NULL;
}

static bool has_failed(const struct sequential *s)
{
    return s->error.failure != GPU_OK;
}

/* --- Making --- */

static void take(struct sequential *s)
{
    net_take(&s->net, &s->memory);
    if (is_on_gpu(s))
        s->rows.is_rejected_there = train_take(&s->memory, TRAIN_INPUT, s->pass_rows, 1);
}

void sequential_shape_net(struct sequential *s)
{
    struct net_options network = network_of(&s->options);
    s->pass_rows = s->pass_windows = MAX((uint32_t)SEQUENTIAL_PASS, s->options.history);
    s->device = is_on_gpu(s) ? *s->options.device
                             : (struct train_device){.kernels = batch_beside(s->options.kernels)};
    s->memory.device = &s->device;
    net_shape(&s->net, &network, &s->device, s->pass_rows, s->pass_rows);
    if (!is_on_gpu(s))
        s->net.second = net_second(&s->net);
    take(s);
}

/* The host's rows. */
static bool make_rows(struct sequential *s)
{
    const struct net *net = &s->net;
    struct sequential_rows *r = &s->rows;
    size_t in = s->pass_rows * (size_t)net->input->stride, out = s->pass_rows * (size_t)net->output->stride;
    r->is_rejected = train_host_new(&s->device, s->pass_rows, &s->error);
    if (!is_on_gpu(s)) {
        r->in = net->input->values, r->out = net->output->values, r->out_gradients = net->output->gradients;
        return true;
    }
    r->in = train_host_new(&s->device, in * sizeof(*r->in), &s->error);
    r->out = r->out_gradients = train_host_new(&s->device, out * sizeof(*r->out), &s->error);
    return r->is_rejected != NULL && r->in != NULL && r->out != NULL &&
           train_clock_init(&r->clock, &s->device, &s->error);
}

void sequential_make_net(struct sequential *s)
{
    sequential_shape_net(s);
    s->net.error = is_on_gpu(s) ? &s->error : NULL;
    bool is_good = train_memory_make(&s->memory, &s->error);
    if (is_good) {
        take(s);
        is_good = net_start(&s->net, s->options.kernels, &s->error) && make_rows(s);
    }
    leat_assert(is_good || is_on_gpu(s)); /* on a CPU, memory that lacks ends the process */
}

void sequential_free_net(struct sequential *s)
{
    struct sequential_rows *r = &s->rows;
    struct gpu_error error;
    (void)train_wait(&s->device, &error); /* nothing reads the host's memory any more */
    train_clock_free(&r->clock, &s->device);
    net_stop(&s->net);
    train_host_free(&s->device, r->is_rejected);
    if (is_on_gpu(s)) {
        train_host_free(&s->device, r->in);
        train_host_free(&s->device, r->out);
    }
    free(s->net.second);
    train_memory_free(&s->memory);
}

const struct gpu_error *sequential_error(const struct sequential *s)
{
    return has_failed(s) ? &s->error : NULL;
}

double sequential_busy_ms(struct sequential *s)
{
    train_clock_count(&s->rows.clock, &s->device);
    return s->rows.clock.busy_ms;
}

/* --- Passes --- */

/* Waits for what is queued. */
static void finish(struct sequential *s)
{
    train_clock_end(&s->rows.clock, &s->device);
    if (train_wait(&s->device, &s->error))
        train_clock_count(&s->rows.clock, &s->device);
}

void sequential_forward(struct sequential *s, const struct sequential_pass *pass)
{
    const struct net_matrix *in = s->net.input, *out = s->net.output;
    if (!is_on_gpu(s)) {
        net_forward(&s->net, pass->rows);
        return;
    }
    if (has_failed(s) || pass->rows == 0)
        return;
    train_clock_begin(&s->rows.clock, &s->device);
    train_copy(&s->device, in->values, s->rows.in, (size_t)pass->rows * in->stride * sizeof(float));
    net_forward(&s->net, pass->rows);
    train_copy(&s->device, s->rows.out, out->values, (size_t)pass->rows * out->stride * sizeof(float));
    finish(s);
}

void sequential_reject(struct sequential *s, const struct sequential_pass *pass)
{
    const struct sequential_rows *r = &s->rows;
    if (has_failed(s))
        return;
    if (is_on_gpu(s))
        train_copy(&s->device, r->is_rejected_there, r->is_rejected, pass->rows);
    net_mask(&s->net, pass->rows, is_on_gpu(s) ? r->is_rejected_there : r->is_rejected);
}

void sequential_backward(struct sequential *s, const struct sequential_pass *pass, float *gradients)
{
    struct net *net = &s->net;
    struct net_matrix *in = net->input, *out = net->output;
    size_t bytes = (size_t)pass->rows * in->stride * sizeof(float);
    net_begin(net);
    if (!is_on_gpu(s)) {
        float *own = in->gradients;
        in->gradients = gradients;
        net_backward(net, pass->rows);
        in->gradients = own;
        return;
    }
    if (has_failed(s))
        return;
    train_clock_begin(&s->rows.clock, &s->device);
    train_copy(&s->device, out->gradients, s->rows.out_gradients,
               (size_t)pass->rows * out->stride * sizeof(float));
    net_backward(net, pass->rows);
    train_copy(&s->device, s->rows.in, in->gradients, bytes);
    finish(s);
    memcpy(gradients, s->rows.in, bytes);
}

void sequential_update(struct sequential *s)
{
    if (has_failed(s))
        return;
    train_clock_begin(&s->rows.clock, &s->device);
    net_update(&s->net);
    train_clock_end(&s->rows.clock, &s->device);
}
