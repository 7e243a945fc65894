// The optimisers' steps. The results may overwrite the parameter and what the optimiser remembers.
// NAME takes numbers such as the rate as single elements; NAME_walk as arrays that broadcast.

#include "common.cuh"

// Stochastic gradient descent: velocity = momentum * velocity + gradient + decay * parameter, then
// parameter -= rate * velocity; with Nesterov's momentum, as operators/update.py says.
template <bool nesterov> struct Descent {
    Real rate, momentum, decay;

    __device__ __forceinline__ void step(Real& parameter, Real gradient, Real& velocity) const
    {
        if constexpr (nesterov) {
            const Real down = gradient + decay * parameter;
            velocity = momentum * velocity + down;
            parameter -= rate * (down + momentum * velocity);
        } else {
            velocity = momentum * velocity + gradient + decay * parameter;
            parameter -= rate * velocity;
        }
    }
};

struct Adam {
    Real rate, c1, c2, beta1, beta2, epsilon, decay;

    template <bool decoupled>
    __device__ __forceinline__ void step(
        Real& parameter, Real gradient, Real& first, Real& second) const
    {
        if constexpr (decoupled)
            parameter *= Real(1) - rate * decay;
        else
            gradient += decay * parameter;
        first = beta1 * first + (Real(1) - beta1) * gradient;
        second = beta2 * second + (Real(1) - beta2) * gradient * gradient;
        parameter -= rate / c1 * first / (sqrt(second) / sqrt(c2) + epsilon);
    }
};

struct Lion {
    Real rate, beta1, beta2, decay;

    __device__ __forceinline__ void step(Real& parameter, Real gradient, Real& velocity) const
    {
        const Real mixed = beta1 * velocity + (Real(1) - beta1) * gradient;
        // The sign; NaN and both zeros stay.
        const Real sign = mixed > Real(0) ? Real(1) : mixed < Real(0) ? Real(-1) : mixed;
        parameter = parameter * (Real(1) - rate * decay) - rate * sign;
        velocity = beta2 * velocity + (Real(1) - beta2) * gradient;
    }
};

#define ARRAYS2 \
    Real *new_parameter, Real *new_velocity, const Real *parameter, const Real *gradient, \
        const Real *velocity

template <typename How>
__device__ __forceinline__ void step2(ARRAYS2, Size i, const How& how)
{
    Real value = parameter[i], speed = velocity[i];
    how.step(value, gradient[i], speed);
    new_parameter[i] = value;
    new_velocity[i] = speed;
}

#define SGD(name, nesterov) \
    extern "C" __global__ void name( \
        ARRAYS2, const Real* rate, const Real* momentum, const Real* decay, Size count) \
    { \
        const Descent<nesterov> how = {*rate, *momentum, *decay}; \
        for (Size i = first_position(); i < count; i += all_threads()) \
            step2(new_parameter, new_velocity, parameter, gradient, velocity, i, how); \
    } \
    extern "C" __global__ void name##_walk( \
        ARRAYS2, const Real* rate, const Real* momentum, const Real* decay, Size count, Walk<3> walk) \
    { \
        for (Size i = first_position(); i < count; i += all_threads()) { \
            Size at[3]; \
            locate(walk, (unsigned long long)i, at); \
            const Descent<nesterov> how = {rate[at[0]], momentum[at[1]], decay[at[2]]}; \
            step2(new_parameter, new_velocity, parameter, gradient, velocity, i, how); \
        } \
    }

SGD(sgd, false)
SGD(sgd_nesterov, true)

#define LION const Real *rate, const Real *beta1, const Real *beta2, const Real *decay, Size count

extern "C" __global__ void lion(ARRAYS2, LION)
{
    const Lion how = {*rate, *beta1, *beta2, *decay};
    for (Size i = first_position(); i < count; i += all_threads())
        step2(new_parameter, new_velocity, parameter, gradient, velocity, i, how);
}

extern "C" __global__ void lion_walk(ARRAYS2, LION, Walk<4> walk)
{
    for (Size i = first_position(); i < count; i += all_threads()) {
        Size at[4];
        locate(walk, (unsigned long long)i, at);
        const Lion how = {rate[at[0]], beta1[at[1]], beta2[at[2]], decay[at[3]]};
        step2(new_parameter, new_velocity, parameter, gradient, velocity, i, how);
    }
}

#define ARRAYS3 \
    Real *new_parameter, Real *new_first, Real *new_second, const Real *parameter, \
        const Real *gradient, const Real *first, const Real *second
#define ADAM \
    const Real *rate, const Real *c1, const Real *c2, const Real *beta1, const Real *beta2, \
        const Real *epsilon, const Real *decay, Size count

template <bool decoupled>
__device__ __forceinline__ void step3(ARRAYS3, Size i, const Adam& how)
{
    Real value = parameter[i], mean = first[i], square = second[i];
    how.step<decoupled>(value, gradient[i], mean, square);
    new_parameter[i] = value;
    new_first[i] = mean;
    new_second[i] = square;
}

#define ADAMS(name, decoupled) \
    extern "C" __global__ void name(ARRAYS3, ADAM) \
    { \
        const Adam how = {*rate, *c1, *c2, *beta1, *beta2, *epsilon, *decay}; \
        for (Size i = first_position(); i < count; i += all_threads()) \
            step3<decoupled>( \
                new_parameter, new_first, new_second, parameter, gradient, first, second, i, how); \
    } \
    extern "C" __global__ void name##_walk(ARRAYS3, ADAM, Walk<7> walk) \
    { \
        for (Size i = first_position(); i < count; i += all_threads()) { \
            Size at[7]; \
            locate(walk, (unsigned long long)i, at); \
            const Adam how = {rate[at[0]], c1[at[1]], c2[at[2]], beta1[at[3]], beta2[at[4]], \
                              epsilon[at[5]], decay[at[6]]}; \
            step3<decoupled>( \
                new_parameter, new_first, new_second, parameter, gradient, first, second, i, how); \
        } \
    }

ADAMS(adam, false)
ADAMS(adamw, true)

// Without momentum: parameter - rate * gradient.
extern "C" __global__ void descend(
    Real* new_parameter, const Real* parameter, const Real* rate, const Real* gradient, Size count)
{
    const Real r = *rate;
    for (Size i = first_position(); i < count; i += all_threads())
        new_parameter[i] = parameter[i] - r * gradient[i];
}
